"""Types of arrays over policies."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[Any]
Count = NDArray[Any] | float
Mask = NDArray[np.bool_]
