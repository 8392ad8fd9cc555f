"""The catalogue: one function for each published method, whose body is the composition and whose docstring is the
method: its update, what is remembered and sent, its parameters, an example.

==============  ====================================================================================================
compressed      say less: psgd compressed_sgd mem_sgd double_squeeze neolithic power_sgd
one_bit         say less of Adam: one_bit_adam zero_one_adam
decoupled       let momenta differ: demo
differences     say what changed: ef21 ef21_sgdm econtrol diana marina
lazy            say nothing that others know: lag lasg
gossip          talk to few: dsgd hierarchical_dsgd gossip_pga gossip_aga choco sgp
squeezed        talk to few, and say less: deep_squeeze dcd_psgd ecd_psgd
momentum        gossip with momentum: dmsgd decentlam qg_dsgdm
corrected       gossip without the bias of heterogeneous data: d2 exact_diffusion gradient_tracking
                push_diging
periodic        talk rarely: local_sgd post_local_sgd ada_comm dasgd overlap_local_sgd sparta
federated       talk rarely, on data of one's own: fedavg scaffnew fedprox scaffold fedopt
robust          trust nobody: robust_sgd clipped_gossip
outer           talk rarely, with a second optimizer: slowmo diloco streaming_diloco
loco            DiLoCo's kin: muloco noloco sparse_loco qsparse_local_sgd
asynchronous    wait for nobody: async_sgd async_local_sgd quorum_local_sgd ad_psgd stale_dsgd
==============  ====================================================================================================

Everywhere: n workers, x_i and g_i the parameters and stochastic gradient of worker i, gamma the learning rate, W the
mixing matrix (W[i, j] weighs what i receives from j), C a compressor, d coordinates. `optimizer` is a factory such as
`functools.partial(torch.optim.SGD, lr=0.1)`; the equations show plain SGD, any torch optimizer may take its place.
"""

from commeff.methods.asynchronous import ad_psgd, async_local_sgd, async_sgd, quorum_local_sgd, stale_dsgd
from commeff.methods.compressed import compressed_sgd, double_squeeze, mem_sgd, neolithic, power_sgd, psgd
from commeff.methods.corrected import d2, exact_diffusion, gradient_tracking, push_diging
from commeff.methods.decoupled import demo
from commeff.methods.differences import diana, econtrol, ef21, ef21_sgdm, marina
from commeff.methods.federated import fedavg, fedopt, fedprox, scaffnew, scaffold
from commeff.methods.gossip import choco, dsgd, gossip_aga, gossip_pga, hierarchical_dsgd, sgp
from commeff.methods.lazy import lag, lasg
from commeff.methods.loco import muloco, noloco, qsparse_local_sgd, sparse_loco
from commeff.methods.momentum import decentlam, dmsgd, qg_dsgdm
from commeff.methods.one_bit import one_bit_adam, zero_one_adam
from commeff.methods.outer import diloco, slowmo, streaming_diloco
from commeff.methods.periodic import ada_comm, dasgd, local_sgd, overlap_local_sgd, post_local_sgd, sparta
from commeff.methods.robust import clipped_gossip, robust_sgd
from commeff.methods.squeezed import dcd_psgd, deep_squeeze, ecd_psgd

__all__ = [
    "ad_psgd",
    "ada_comm",
    "async_local_sgd",
    "async_sgd",
    "choco",
    "clipped_gossip",
    "compressed_sgd",
    "d2",
    "dasgd",
    "dcd_psgd",
    "decentlam",
    "deep_squeeze",
    "demo",
    "diana",
    "diloco",
    "dmsgd",
    "double_squeeze",
    "dsgd",
    "ecd_psgd",
    "econtrol",
    "ef21",
    "ef21_sgdm",
    "exact_diffusion",
    "fedavg",
    "fedopt",
    "fedprox",
    "gossip_aga",
    "gossip_pga",
    "gradient_tracking",
    "hierarchical_dsgd",
    "lag",
    "lasg",
    "local_sgd",
    "marina",
    "mem_sgd",
    "muloco",
    "neolithic",
    "noloco",
    "one_bit_adam",
    "overlap_local_sgd",
    "post_local_sgd",
    "power_sgd",
    "psgd",
    "push_diging",
    "qg_dsgdm",
    "qsparse_local_sgd",
    "quorum_local_sgd",
    "robust_sgd",
    "scaffnew",
    "scaffold",
    "sgp",
    "slowmo",
    "sparse_loco",
    "sparta",
    "stale_dsgd",
    "streaming_diloco",
    "zero_one_adam",
]
