"""What stands on the stages of a pipeline that may be the fullest: layers, embeddings, activations in flight."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from commeff.planner.arrays import Numbers
from commeff.planner.choices import SCHEDULES
from commeff.planner.model import Model
from commeff.planner.policies import Policies


@dataclass(frozen=True, eq=False)
class PipelineStages:
    """Arrays (stages, policies). Where all pieces are equal, only the first stage and the last can be the fullest:
    those between have less in flight than the first and nothing else.

    Parameters
    ----------
    layers : on the stage.
    embeddings : V x h matrices: one on the first stage and one on the last (tied copies are copies), or all on one.
    first, last : whether it is the stage of the embedding, of the head.
    in_flight : micro-batches whose activations it keeps at once, in units of the whole stage.
    """

    layers: Numbers
    embeddings: Numbers
    first: Numbers
    last: Numbers
    in_flight: Numbers

    @classmethod
    def even(cls, model: Model, policies: Policies, micro_batches: Numbers) -> PipelineStages:
        """The first stage and the last of equal ones."""
        in_flight = np.stack(np.broadcast_arrays(*micro_batches_in_flight(policies, micro_batches)))
        alone = np.broadcast_to(policies.pipeline == 1, in_flight.shape)
        row = np.array([[True], [False]])
        return cls(
            layers=np.broadcast_to(model.layers / policies.pipeline, in_flight.shape),
            embeddings=np.where(alone, 1 if model.tied_embeddings else 2, 1),
            first=alone | row,
            last=alone | ~row,
            in_flight=in_flight,
        )

    @classmethod
    def uneven(cls, model: Model, layers: Numbers, in_flight: Numbers) -> PipelineStages:
        """Every stage of one policy."""
        place, p = np.arange(len(layers)), len(layers)
        both = 1 if model.tied_embeddings else 2
        ends = (place == 0).astype(int) + (place == p - 1)
        embeddings = ends if p > 1 else np.array([both])
        columns = (layers, embeddings, place == 0, place == p - 1, in_flight)
        return cls(*(column[:, None] for column in columns))

    @property
    def even_layers(self) -> bool:
        """Whether all stages hold as many layers and embeddings."""
        return all(bool((count == count[0]).all()) for count in (self.layers, self.embeddings))

    def parameters(self, model: Model, policies: Policies) -> Numbers:
        """On each of a stage's ranks, before ZeRO; keys and values of a shared head once more for each rank that
        replicates it.
        """
        t = policies.tensor
        repeated = np.maximum(t / model.key_heads, 1) - 1
        layer = model.layer_parameters / t + 2 * model.hidden * model.key_width / t * repeated
        return self.layers * layer + self.embeddings * model.embedding_parameters / t


def micro_batches_in_flight(policies: Policies, micro_batches: Numbers) -> tuple[Numbers, Numbers]:
    """Micro-batches that the first and the last stage keep at once, in units of a whole stage.

    Naive 1; GPipe m; 1F1B min(m, p - i) on stage i from 0; ZB-H1 min(m, p) on all, as late stages put off more
    gradients of weights; interleaved, the first stage, p (1 + (p-1)/(p v)) and the last (p (v-1) + 1)/v, at most m.

    Parameters
    ----------
    policies : the policies to be priced.
    micro_batches : micro-batches of each rank in a step.
    """
    m, p, v = micro_batches, policies.pipeline, policies.chunks
    kinds = ("naive", "gpipe", "zero_bubble")
    naive, gpipe, zero_bubble = (policies.schedule == SCHEDULES.index(name) for name in kinds)
    first = np.minimum(m, p + np.where(v > 1, (p - 1) / v, 0))
    last = np.minimum(m, (p * (v - 1) + 1) / v)
    return (
        np.select([naive, gpipe], [1, m], first),
        np.select([naive, gpipe, zero_bubble], [1, m, np.minimum(m, p)], last),
    )
