"""One run on processes that a launcher has started: torchrun, srun, or whoever sets RANK and WORLD_SIZE."""
