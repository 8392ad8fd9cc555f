"""A table for each group of choices, of what signatures do not say."""
