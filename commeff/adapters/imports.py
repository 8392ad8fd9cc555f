"""Imports of other trainers, which import torchvision where it is installed."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version

import torch


@contextmanager
def explain_torchvision() -> Iterator[None]:
    """Around an import that fails because torchvision does not load: an ImportError names the wheel that helps."""
    try:
        yield
    except Exception as error:
        if "torchvision::" not in "".join(traceback.format_exception(error)):
            raise
        _, _, build = torch.__version__.partition("+")
        index = f" --index-url https://download.pytorch.org/whl/{build}" if build else ""
        raise ImportError(
            f"torchvision must be built for torch {torch.__version__}, got a wheel whose operators do not load: pip "
            f"install --force-reinstall --no-deps torchvision=={version('torchvision').partition('+')[0]}{index}"
        ) from error
