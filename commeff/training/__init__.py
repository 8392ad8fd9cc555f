"""The loop: batch, gradient, strategy.step, record; with evaluation and checkpoints."""
