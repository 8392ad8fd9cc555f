"""Published figures of networks beside those of `commeff.cluster`: theirs, ours, and the difference.

    gossip       the lecture's table on gossip against all-reduce: ten figures, two fitted constants
    contention   SimGrid's figures on crossbars and fat trees, nothing fitted
    report       both as CSV and Markdown

`python -m commeff.experiments.published.networks.report` writes `results/cluster`.
"""
