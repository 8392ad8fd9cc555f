"""Optimizers that torch lacks, as `torch.optim.Optimizer`s: they serve any training script, and any method here.

======================================  ===========================================================================
by coordinate: all workers at once      EMAMomentum Lion UncorrectedAdam AdamSAGE ScheduleFreeSGD ScheduleFreeAdamW
                                        SophiaG SophiaH FedAdam FedYogi
by tensor: one object a worker          LARS LAMB Adam8bit MuonWithAdamW
======================================  ===========================================================================

torch has SGD, Adagrad, Adam, AdamW, RAdam, NAdam, Adafactor and more, which are used as they are.
"""

from commeff.optimizers.adaptive import Adam8bit, AdamSAGE, UncorrectedAdam
from commeff.optimizers.federated import FedAdam, FedYogi
from commeff.optimizers.first_moment import EMAMomentum, Lion
from commeff.optimizers.layerwise import LAMB, LARS, MuonWithAdamW
from commeff.optimizers.schedule_free import ScheduleFreeAdamW, ScheduleFreeSGD
from commeff.optimizers.sophia import SophiaG, SophiaH

__all__ = [
    "LAMB",
    "LARS",
    "Adam8bit",
    "AdamSAGE",
    "EMAMomentum",
    "FedAdam",
    "FedYogi",
    "Lion",
    "MuonWithAdamW",
    "ScheduleFreeAdamW",
    "ScheduleFreeSGD",
    "SophiaG",
    "SophiaH",
    "UncorrectedAdam",
]
