"""Which cells a grid file means, and whether they can run."""
