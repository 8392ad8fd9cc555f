"""Imported first by the fork server, which ignores signals: asks the kernel to end it when its parent ends."""

from __future__ import annotations

import sys

from commeff.experiments.run.orphans import end_with_parent

if any("multiprocessing.forkserver" in word for word in sys.orig_argv):
    end_with_parent()
