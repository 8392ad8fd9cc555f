"""`commeff bench`: how far the library is from the limit of this machine, as ratios taken within one run.

Machines are noisy and shared, so a figure is never a time alone: what is compared runs interleaved (A B C A B C ...),
on one thread, and the median of the ratios of CPU time is quoted.
"""
