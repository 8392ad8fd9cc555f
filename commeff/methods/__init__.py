"""The catalogue: one function for each published method, whose body is the composition and whose docstring is the
method.

Everywhere: n workers, x_i and g_i the parameters and stochastic gradient of worker i, gamma the learning rate, W the
mixing matrix (W[i, j] weighs what i receives from j), C a compressor, d coordinates. `optimizer` is a factory such as
`functools.partial(torch.optim.SGD, lr=0.1)`; the equations show plain SGD, any torch optimizer may take its place.
"""

from commeff.methods.compressed import (
    compressed_sgd,
    diana,
    double_squeeze,
    ef21,
    ef21_sgdm,
    mem_sgd,
    neolithic,
    power_sgd,
    psgd,
)
from commeff.methods.gossip import (
    choco,
    d2,
    decentlam,
    dmsgd,
    dsgd,
    exact_diffusion,
    gossip_pga,
    gradient_tracking,
    hierarchical_dsgd,
    qg_dsgdm,
    sgp,
)
from commeff.methods.periodic import (
    dasgd,
    diloco,
    fedopt,
    fedprox,
    local_sgd,
    post_local_sgd,
    scaffold,
    slowmo,
    sparse_loco,
    sparta,
    streaming_diloco,
)

__all__ = [
    "choco",
    "compressed_sgd",
    "d2",
    "dasgd",
    "decentlam",
    "diana",
    "diloco",
    "dmsgd",
    "double_squeeze",
    "dsgd",
    "ef21",
    "ef21_sgdm",
    "exact_diffusion",
    "fedopt",
    "fedprox",
    "gossip_pga",
    "gradient_tracking",
    "hierarchical_dsgd",
    "local_sgd",
    "mem_sgd",
    "neolithic",
    "post_local_sgd",
    "power_sgd",
    "psgd",
    "qg_dsgdm",
    "scaffold",
    "sgp",
    "slowmo",
    "sparse_loco",
    "sparta",
    "streaming_diloco",
]
