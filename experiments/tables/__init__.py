"""Published tables beside what this library's models say: theirs, ours, and the difference.

`python -m experiments.tables.networks` writes `results/cluster`.
"""
