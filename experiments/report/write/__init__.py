"""Files of a report: HTML, Markdown, LaTeX, CSV."""
