"""Pages of the documentation that are made: the catalogue and the reference of docstrings, links, equations, pictures.

`make docs` calls them through `docs/hooks.py`.
"""
