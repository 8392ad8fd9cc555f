"""Bytes between processes: transport over process groups, shared memory, doorbells."""
