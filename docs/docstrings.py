"""What griffe calls for each object whose docstring mkdocstrings sets."""

from __future__ import annotations

import griffe

from docs.generator.docstrings import markdown

SET = ("commeff.methods.", "commeff.compressors.")  # where what is indented is an equation


class Docstrings(griffe.Extension):
    """Makes Markdown of docstrings: equations, tables, links."""

    def on_object(self, *, obj: griffe.Object, **kwargs: object) -> None:
        if obj.docstring:
            obj.docstring.value = markdown(obj.docstring.value, obj.path.startswith(SET))
