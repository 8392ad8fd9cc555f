"""The server that forks processes imports this first: it is deaf, and would go on importing when nobody is left."""

from __future__ import annotations

import sys

from commeff.experiments.run.orphans import end_with_parent

if any("multiprocessing.forkserver" in word for word in sys.orig_argv):
    end_with_parent()
