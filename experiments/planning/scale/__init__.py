"""`commeff scale`: throughput against the number of workers, measured here and modelled on a described cluster.

The lectures' two curves: a small and a large ratio of communication to computing, ring all-reduce against partial
averaging. What is measured and what is modelled is marked on every row and drawn differently.
"""
