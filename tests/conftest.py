"""One thread per process: test processes run side by side, and results do not depend on the machine's cores."""

import torch

from tests.forks import fork_servers

torch.set_num_threads(1)
fork_servers()
