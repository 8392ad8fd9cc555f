"""Which runs: the command line, configuration, tasks, grids and reports."""
