"""Strategies in other people's training loops: an optimizer to wrap, a DDP hook."""
