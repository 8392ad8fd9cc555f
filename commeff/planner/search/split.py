"""The chain that a policy's pipeline is, so that its layers can be cut."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from commeff.cluster import Cluster
from commeff.planner.constants import MEASURED, Constants
from commeff.planner.estimate import StepParts
from commeff.planner.memory import PipelineStages, memory, worker_memory
from commeff.planner.model import Model
from commeff.planner.policies import SCHEDULES, Mask, Policies, Setting
from commeff.planner.policy import Policy
from commeff.planner.search.chain import CutChain, Cuts

CUTTABLE = ("gpipe", "1f1b")  # schedules of one chunk whose time the chain's formula gives


def cuttable(policies: Policies) -> Mask:
    """Pipelines whose stages may be unequal."""
    schedules = [SCHEDULES.index(name) for name in CUTTABLE]
    return np.isin(policies.schedule, schedules) & (policies.pipeline > 1)


def chain(
    model: Model, policy: Policy, cluster: Cluster, global_batch: int, constants: Constants = MEASURED
) -> CutChain:
    """Seconds and bytes of every stage with any number of layers.

    Parameters
    ----------
    model : the transformer to be trained.
    policy : a policy whose stages are to be cut.
    cluster : the GPUs and the links between them.
    global_batch : sequences in a step, over all ranks.
    constants : what a real machine reaches of its data sheet.

    Examples
    --------
    >>> from commeff.planner.search.chain import dynamic
    >>> model = Model(layers=8, hidden=2048, heads=16, sequence=1024, vocab=256000)
    >>> policy = Policy(pipeline=4, data=2)
    >>> dynamic(chain(model, policy, Cluster.named("a100_selene", gpus=8), global_batch=64))  # a large vocabulary
    (2, 2, 3, 1)
    """
    one = Policies.of([policy])
    setting = Setting(model, cluster, global_batch, constants)
    pieces = StepParts.of(one, setting)
    p, m = policy.pipeline, int(one.micro_batches(setting)[0])
    stage, n = np.divmod(np.arange(p * model.layers), model.layers)
    n += 1
    first, last = stage == 0, stage == p - 1
    seconds = n * float((pieces.layer.forward_total + pieces.layer.backward_total)[0]) + 2 * float(pieces.boundary[0])
    seconds = seconds + first * float((pieces.embedding.forward_total + pieces.embedding.backward_total)[0])
    seconds = seconds + last * float((pieces.head.forward_total + pieces.head.backward_total)[0])
    in_flight = np.minimum(m, p - stage) if policy.schedule == "1f1b" else np.full(len(n), m)
    columns = (n, first.astype(int) + last, first, last, in_flight)
    stages = PipelineStages(*(column[None] for column in columns))
    held = memory(one, setting, stages, worker_memory(one, setting, stages))
    fits = np.broadcast_to(sum(held.values()) <= cluster.gpu.memory_bytes, n.shape)
    return CutChain(seconds.reshape(p, -1), fits.reshape(p, -1), m)


def recut(policy: Policy, cuts: Cuts) -> Policy:
    """The policy with these layers on its stages.

    Parameters
    ----------
    policy : the policy to be changed.
    cuts : layers of each stage; None: left as they are.
    """
    return policy if cuts is None or len(set(cuts)) == 1 else replace(policy, stages=cuts)
