"""A grid's cells on this machine, a process each."""
