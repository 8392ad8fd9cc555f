"""The loop: batch, gradient, strategy.step, record; with evaluation, checkpoints and resharding."""
