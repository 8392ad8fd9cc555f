"""Grids of runs: what a grid file says, its cells, the scheduler that runs them, and what a reader sees of it.

- `spec`: a file -> combinations of settings.      `plan`: combinations -> cells, all faults found before anything runs.
- `scheduler`: cells -> processes, `server`: forks.  `cell`, `step`: what runs in such a process.
- `site`: a cluster, described once.               `sbatch`, `script`: cells -> a SLURM job array, `frozen`: its cells.
- `view`: the live table.                          `status`: how the cells of a store stand.
"""
