"""Methods of ours beside those of other libraries, on the same processes, models and data."""
