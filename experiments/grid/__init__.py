"""Grids of runs.

- `command`: `commeff grid` from its arguments to its exit code.
- `plan`: `spec` a file -> combinations of settings, `expand` combinations -> cells, and what does not fit; `cells`
  what they will take.
- `local`: `scheduler` cells -> processes, `server` forks them, `cell` and `srun_step` run in such a process, `view` is
  the live table.
- `slurm`: `site` a cluster, described once, `sbatch` and `script` cells -> a job array.
- `status`: the states of the cells of a store.
"""
