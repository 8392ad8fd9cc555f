"""Published figures of networks beside those of `commeff.cluster`: theirs, ours, and the difference.

    bluefog      39 throughputs of gossip and all-reduce on 4 to 128 GPUs, one constant, fitted and held out
    contention   SimGrid's figures on crossbars and fat trees, nothing fitted
    report       both as CSV and Markdown

`python -m commeff.experiments.studies.networks.report` writes `results/cluster`.
"""
