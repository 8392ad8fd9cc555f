"""One thread per process: test processes run side by side, and results do not depend on the machine's cores."""

import torch

torch.set_num_threads(1)
