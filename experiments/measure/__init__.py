"""`commeff bench comm`: links between processes, collectives over them, compressors, the machine's own speeds."""
