"""Seconds of what crosses the links outside a layer: stage to stage, ZeRO within a worker, methods between workers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from commeff.cluster import Cluster, collectives
from commeff.cluster.groups import Groups
from commeff.planner.constants import Constants
from commeff.planner.memory import STATES
from commeff.planner.model import Model
from commeff.planner.policies import Numbers, Policies

ENCODING = 24  # bytes of memory traffic for each number compressed and added up again: error in and out, scan, send


def boundary_seconds(model: Model, policies: Policies, cluster: Cluster) -> Numbers:
    """One micro-batch from a stage to the next: b s h 16-bit numbers, each tensor rank sending its part, which the
    receivers gather in the node unless they keep sequences split (Narayanan 2021, the scatter/gather optimisation).
    """
    t, size = policies.tensor, 2 * policies.tokens(model.sequence) * model.hidden
    groups = Groups.strided(cluster, policies.pipeline, t * policies.data)
    inside = policies.splitting(cluster)
    gather = np.where(policies.sequence_parallel, 0.0, collectives.all_gather(inside, size / t))
    return collectives.point_to_point(groups, size / t) + (policies.pipeline > 1) * gather


class Sharing(NamedTuple):
    """Seconds a step that ranks of one worker talk to each other."""

    gradients: Numbers  # once a step, may hide behind the last backward pass
    gathers: Numbers  # of weights (ZeRO-3) and scattered gradients in every micro-batch, may hide behind computation


def sharing_seconds(parameters: Numbers, policies: Policies, micro_batches: Numbers, cluster: Cluster) -> Sharing:
    """Traffic of the `shard` ranks of a worker, P local parameters (Rajbhandari 2020).

    ZeRO 0: all-reduce of gradients. 1: reduce-scatter of gradients, all-gather of weights. 2: the reduce-scatter in
    every micro-batch, as there is no room to add up whole gradients. 3: in every micro-batch two all-gathers of
    weights and a reduce-scatter: 3 Psi instead of 2 Psi for one micro-batch.
    """
    weights, gradients, _ = STATES[policies.precision]
    groups = policies.sharing(cluster)
    reduce, gather = (collectives.reduce_scatter(groups, kind * parameters) for kind in (gradients, weights))
    often = micro_batches - 1
    whole = collectives.all_reduce(groups, gradients * parameters)
    once = np.select([policies.zero == 0, policies.zero < 3], [whole, reduce + gather], reduce)
    many = np.select(
        [policies.zero == 3, policies.zero == 2], [2 * micro_batches * gather + often * reduce, often * reduce], 0.0
    )
    return Sharing(once, many)


def tied_seconds(model: Model, policies: Policies, cluster: Cluster) -> Numbers:
    """The first and the last stage add up the gradients of their copies of a tied embedding. They are in one node only
    if everything is.
    """
    if not model.tied_embeddings:
        return np.zeros_like(policies.tensor, dtype=float)
    two = np.minimum(policies.pipeline, 2)
    groups = Groups.equal(cluster, two, two if cluster.nodes == 1 else np.ones_like(two))
    return collectives.all_reduce(groups, STATES[policies.precision][1] * model.embedding_parameters / policies.tensor)


def worker_seconds(
    model: Model, parameters: Numbers, policies: Policies, cluster: Cluster, constants: Constants
) -> Numbers:
    """Seconds a step that workers talk to each other, each rank of a worker about its own share of P numbers.

    psgd: all-reduce of gradients. Compressed: all-reduce of what adds up, all-gather of what does not, (n-1)
    messages, and encoding. Gossip: `degree` models. Periodic: one all-reduce of models, spread over `period` steps.
    The ranks of a worker have its gradients scattered among them already, so each sends P / shard numbers. Models that
    ZeRO does not gather anyway are gathered in the worker afterwards.
    """
    talks = policies.workers > 1
    found = np.zeros(np.broadcast_shapes(np.shape(parameters), np.shape(talks)))
    if not np.any(talks):
        return found
    weights, gradients, _ = STATES[policies.precision]
    numbers = parameters / policies.shard
    groups = Groups.strided(cluster, policies.workers, policies.tensor * policies.shard)
    if np.any(policies.gradients):
        message = gradients * numbers
        if np.any(policies.compresses):
            low_rank = 4 * low_rank_numbers(model, policies) / policies.shard
            payload = np.where(policies.rank > 0, low_rank, policies.value_bytes * numbers)
            message = np.where(policies.compresses, payload, message)
        reduced = collectives.all_reduce(groups, message)
        if not np.all(policies.summable):
            reduced = np.where(policies.summable, reduced, collectives.all_gather(groups, message))
        encoded = policies.compresses * (ENCODING + 4 * policies.rank) * numbers / cluster.gpu.memory_bandwidth
        found = found + policies.gradients * (reduced + encoded / constants.memory_efficiency)
    if np.any(policies.gossip) or np.any(policies.periodic):
        gathered = collectives.all_gather(policies.sharing(cluster), weights * numbers)
        gossip = collectives.neighbours(groups, weights * numbers, policies.degree)
        average = collectives.all_reduce(groups, weights * numbers)
        models = policies.gossip * gossip + policies.periodic * average / policies.period
        whole = (policies.zero == 0) * (policies.gossip + policies.periodic / policies.period) * gathered
        found = found + models + whole
    return talks * found


def low_rank_numbers(model: Model, policies: Policies) -> Numbers:
    """Numbers sent for every matrix, split over the tensor ranks: the two factors of rank r, r (rows + columns), or the
    matrix itself where those are more (Vogels 2019).
    """
    t, layers = policies.tensor, model.layers / policies.pipeline
    matrices = (
        (2 * layers, model.query_width / t),
        (2 * layers, model.key_width / t),
        ((3 if model.gated else 2) * layers, model.ffn_width / t),
        (1, model.vocab / t),
    )
    sent = [
        count * np.minimum(policies.rank * (width + model.hidden), width * model.hidden) for count, width in matrices
    ]
    return np.sum(sent, axis=0)


def optimizer_seconds(parameters: Numbers, policies: Policies, cluster: Cluster, constants: Constants) -> Numbers:
    """Adam reads weights, two moments and gradients and writes weights, two moments and their 16-bit copies, 30 bytes
    for each parameter; diloco's outer step, averaged over its period, reads and writes anchor and momentum.
    """
    parameters = parameters / np.where(policies.zero >= 1, policies.shard, 1)
    outer = policies.periodic * 2 * policies.memory_bytes / policies.period
    return (30 + outer) * parameters / (cluster.gpu.memory_bandwidth * constants.memory_efficiency)
