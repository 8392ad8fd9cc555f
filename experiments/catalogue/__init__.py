"""From objects to words: what can be chosen, what it does, sends and costs, for `list`, `show` and the pages."""
