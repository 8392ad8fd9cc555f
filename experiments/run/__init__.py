"""One run: its folder in the store, its processes, its devices."""
