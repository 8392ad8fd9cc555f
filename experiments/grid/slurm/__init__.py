"""A grid's cells as SLURM jobs."""
