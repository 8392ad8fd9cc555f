"""Every method of the catalogue at an equal tuning budget: a map of the field, and advice that stands on it."""
