"""The hydra groups: one YAML file per task, method, compressor, topology, optimizer and schedule."""
