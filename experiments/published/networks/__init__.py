"""Published tables beside what this library's models say: theirs, ours, and the difference.

`python -m commeff.experiments.published.networks.report` writes `results/cluster`.
"""
