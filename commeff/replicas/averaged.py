"""The one model that stands for all workers: averaged parameters, with statistics re-estimated on training data."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from commeff.compressors import Layout


def write_row(model: nn.Module, row: Tensor, layout: Layout) -> nn.Module:
    """Copy a flat (d,) row into the parameters of a model with this layout."""
    with torch.no_grad():
        named = dict(model.named_parameters())  # by name: an evaluation copy may have frozen them
        for field in layout.fields:
            named[field.name].copy_(row[field.start : field.stop].view(field.shape))
    return model


def calibrate(model: nn.Module, batches: Iterable[tuple[Tensor, ...]]) -> nn.Module:
    """Re-estimate the running statistics of every BatchNorm as the plain average over the given training inputs.

    The average of the workers' running statistics is not what the averaged network would see; this is.
    """
    norms = [
        part
        for part in model.modules()
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.track_running_stats
    ]
    if not norms:
        return model
    momenta = [part.momentum for part in norms]
    for part in norms:
        part.reset_running_stats()
        part.momentum = None
    training = model.training
    model.eval()
    for part in norms:
        part.train()
    with torch.no_grad():
        for batch in batches:
            model(*batch)
    model.train(training)
    for part, momentum in zip(norms, momenta, strict=True):
        part.momentum = momentum
    return model
