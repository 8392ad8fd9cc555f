"""Data files: the folders they lie in, what a complete copy of each data set is, and getting one into place.

Nothing here imports torch: `commeff data verify` only reads files.
"""
