"""The pages; `generator` makes those of docstrings, and links and equations of all."""
