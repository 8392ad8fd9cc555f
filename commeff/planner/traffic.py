"""Seconds of what a step adds to its layers: stage to stage, within a worker, between workers, the optimizer's pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from commeff.cluster import collectives
from commeff.cluster.groups import Groups
from commeff.planner.policies import Numbers, Policies, PolicySetting


def boundary_seconds(policies: Policies, setting: PolicySetting) -> Numbers:
    """One micro-batch from a stage to the next: b s h numbers, each tensor rank sending its part, which the
    receivers gather in the node unless they keep sequences split (Narayanan 2021, the scatter/gather optimisation).
    """
    t, size = policies.tensor, policies.wide * policies.tokens(setting) * setting.model.hidden
    groups = Groups.strided(setting.cluster, policies.pipeline, t * policies.context * policies.data)
    inside = policies.splitting(setting.cluster)
    gather = np.where(policies.sequence_parallel, 0.0, collectives.all_gather(inside, size / t))
    return collectives.point_to_point(groups, size / t) + (policies.pipeline > 1) * gather


class Waiting(NamedTuple):
    """Seconds that computing can hide.

    Attributes
    ----------
    members : of which policies.
    seconds : of what is sent once.
    often : times a step.
    windows : in how many steps all computing can hide it.
    """

    members: NDArray[np.int64]
    seconds: Numbers
    often: float
    windows: int


@dataclass(frozen=True, eq=False)
class WorkerTraffic:
    """The cost of the worker axis for each policy in a step.

    Attributes
    ----------
    behind_backward : seconds that may hide behind the last backward pass, as gradients of blocks do.
    exposed : seconds that nothing hides.
    waiting : what the computing of a step, or of several, may hide.
    remembering : bytes that a step reads and writes of what the method remembers.
    memory : bytes that it remembers on a rank, before ZeRO.
    """

    behind_backward: Numbers
    exposed: Numbers
    waiting: list[Waiting]
    remembering: Numbers
    memory: Numbers

    def hide(self, room: Numbers, share: Numbers) -> tuple[Numbers, Numbers]:
        """Seconds of `waiting` left of each step, and of the room, where a step has so much and hides that share: a
        message of every step in at most all of it, however many steps it may take.
        """
        left, free = np.zeros_like(self.exposed), room.copy()
        for wait in self.waiting:
            members, seconds = wait.members, wait.often * wait.seconds
            most = np.minimum(min(wait.often * wait.windows, 1.0) * room[members], free[members])
            behind = share[members] * np.minimum(seconds, most)
            free[members] -= behind
            left[members] += seconds - behind
        return left, free


class Sharing(NamedTuple):
    """Seconds a step that ranks of one worker talk to each other.

    Attributes
    ----------
    gradients : once a step; they may hide behind the last backward pass.
    forward, backward : in the passes of one micro-batch: weights (ZeRO-3) and scattered gradients.
    hideable_forward, hideable_backward : of these, what may hide behind the pass: with ZeRO-3 all but one unit.
    """

    gradients: Numbers
    forward: Numbers
    backward: Numbers
    hideable_forward: Numbers
    hideable_backward: Numbers


def sharing_seconds(policies: Policies, setting: PolicySetting, parameters: Numbers, experts: Numbers) -> Sharing:
    """Traffic of the `shard` ranks of a worker, P local parameters (Rajbhandari 2020).

    ZeRO 0: all-reduce of gradients. 1: reduce-scatter of gradients, all-gather of weights. 2: the reduce-scatter in
    every micro-batch, as there is no room to add up whole gradients. 3: in every micro-batch two all-gathers of
    weights (one without `reshard`) and a reduce-scatter: 3 Psi instead of 2 Psi for one micro-batch.

    The collectives of ZeRO-3 are one for each of u units, embeddings being a unit too, rings through the flat group, as
    NCCL has nothing else for them, on all NICs of a node (Zhao 2023), or where every matrix is a unit, on one:

        u (n-1) max(alpha + (g-1)/g P/(u n B),  alpha' + lambda P/(u n B'))

    so many ranks and small units cost latencies. Before the first unit and after the last nothing is computed; without
    `prefetch` nothing hides weights. Units are equal, so fetching more than one ahead hides no more.

    Experts have the same collectives, after the others', among the ranks that hold the same ones; all the matrices of
    a unit's experts are one.

    Parameters
    ----------
    parameters, experts : on each rank, before ZeRO, and of these those of experts.
    """
    model, layers = setting.model, setting.model.layers / policies.pipeline
    units = 1 + np.where(policies.unit == 0, layers * model.matrices, np.ceil(layers / np.maximum(policies.unit, 1)))
    hideable = 1 - (policies.zero == 3) / units
    dense = _sharing(policies, setting, policies.sharing(setting.cluster), parameters - experts, units, hideable)
    if model.experts == 1:
        return dense
    units = np.ceil(layers / np.maximum(policies.unit, model.expert_every))
    of_experts = _sharing(policies, setting, policies.alike(setting.cluster), experts, units, hideable)
    return Sharing(*(a + b for a, b in zip(dense, of_experts, strict=True)))


def _sharing(
    policies: Policies, setting: PolicySetting, groups: Groups, parameters: Numbers, units: Numbers, hideable: Numbers
) -> Sharing:
    weights, gradients, _ = policies.states
    several = policies.micro_batches(setting) > 1  # the last one's gradients go once a step
    two, three = (policies.zero == 2) & several, policies.zero == 3
    reduce, gather = (collectives.reduce_scatter(groups, kind * parameters) for kind in (gradients, weights))
    scattered, gathered = (
        three * units * _flat_rings(groups, policies, kind * parameters / units) for kind in (gradients, weights)
    )
    whole = collectives.all_reduce(groups, gradients * parameters)
    scattered, again, ahead = scattered + two * reduce, policies.reshard * gathered, policies.prefetch > 0
    return Sharing(
        gradients=np.select([policies.zero == 0, three], [whole, 0.0], reduce + gather),
        forward=gathered,
        backward=again + scattered,
        hideable_forward=hideable * ahead * gathered,
        hideable_backward=hideable * (ahead * again + scattered),
    )


def _flat_rings(groups: Groups, policies: Policies, size: Numbers) -> Numbers:
    rings = collectives.reduce_scatter(groups, size, "ring")
    if not (policies.unit == 0).any():
        return rings
    return np.where(policies.unit == 0, collectives.reduce_scatter(groups, size, "one_ring"), rings)


def tied_seconds(policies: Policies, setting: PolicySetting) -> Numbers:
    """The first and the last stage add up the gradients of their copies of a tied embedding. They are in one node only
    if everything is.
    """
    model, cluster = setting.model, setting.cluster
    if not model.tied_embeddings:
        return np.zeros_like(policies.tensor, dtype=float)
    two = np.minimum(policies.pipeline, 2)
    groups = Groups.equal(cluster, two, two if cluster.nodes == 1 else np.ones_like(two))
    return collectives.all_reduce(groups, policies.states[1] * model.embedding_parameters / policies.tensor)


def optimizer_seconds(policies: Policies, setting: PolicySetting, parameters: Numbers, remembering: Numbers) -> Numbers:
    """Adam reads weights, two moments and gradients and writes weights, two moments and their 16-bit copies, 30 bytes
    for each parameter; and what the method of the worker axis reads and writes of what it remembers. With ZeRO each
    rank does its share.

    Parameters
    ----------
    parameters : on each rank, before ZeRO.
    remembering : bytes that a step reads and writes of what the method remembers.
    """
    moved = (30 * parameters + remembering) / np.where(policies.zero >= 1, policies.shard, 1)
    return moved / setting.memory_rate
