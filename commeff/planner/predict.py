"""One policy priced: step time, utilisation, memory, and the parts they are made of."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from commeff.cluster import Cluster
from commeff.planner.constants import HELD_OUT, MEASURED, Constants
from commeff.planner.estimate import StepEstimate, StepParts, estimate, finish
from commeff.planner.memory import PipelineStages, memory, worker_memory
from commeff.planner.model import Model
from commeff.planner.passes import Pass, SpareSeconds, StageSeconds
from commeff.planner.policies import Numbers, Policies, PolicySetting
from commeff.planner.policy import Policy
from commeff.planner.timeline import Timeline, pipeline_seconds, play


@dataclass(frozen=True)
class Prediction:
    """The cost of a step.

    Parameters
    ----------
    step_seconds : of one optimizer step.
    tflops_per_gpu : FLOPs of the step, recomputed ones too, for each GPU and second, in 10^12 (as the Megatron
        papers).
    hfu, mfu : shares of the peak, with and without recomputed FLOPs.
    memory_bytes, fits : on the fullest rank, and whether the GPU has them.
    breakdown : {"seconds": by part, "bytes": by part}; they add up to step_seconds and memory_bytes.
    """

    step_seconds: float
    tflops_per_gpu: float
    hfu: float
    mfu: float
    memory_bytes: float
    fits: bool
    breakdown: dict[str, dict[str, float]]

    @property
    def step_range(self) -> tuple[float, float]:
        """Seconds between which nine of ten measured steps lie, of tables that the planner has not seen: `HELD_OUT`."""
        low, high = HELD_OUT
        return low * self.step_seconds, high * self.step_seconds


def predict(
    model: Model, policy: Policy, cluster: Cluster, *, global_batch: int, constants: Constants = MEASURED
) -> Prediction:
    """Predict the time, the memory and the utilisation of one step of a policy.

    Parameters
    ----------
    model : the transformer to be trained.
    policy : the policy to be priced.
    cluster : the GPUs and the links between them.
    global_batch : sequences in a step, over all ranks.
    constants : what a real machine reaches of its data sheet.

    Examples
    --------
    >>> model = Model(layers=80, hidden=12288, heads=96, sequence=2048, vocab=51200)
    >>> policy = Policy(tensor=8, pipeline=8, data=24, recompute="full")
    >>> p = predict(model, policy, Cluster.named("a100_selene", gpus=1536), global_batch=2304)
    >>> p.fits, p.mfu < p.hfu, abs(sum(p.breakdown["seconds"].values()) / p.step_seconds - 1) < 1e-12
    (True, True, True)
    """
    policy.check(model, cluster, global_batch)
    if policy.stages is None and not policy.recompute_stages:
        priced = estimate(model, Policies.of([policy]), cluster, global_batch, constants)
    else:
        priced = _uneven(policy, PolicySetting(model, cluster, global_batch, constants))
    seconds = {name: float(np.ravel(value)[0]) for name, value in priced.seconds.items()}
    parts = {name: float(np.ravel(value)[0]) for name, value in priced.bytes.items()}
    step, held = sum(seconds.values()), sum(parts.values())
    flops = global_batch * model.flops
    again = sum(n for i, n in enumerate(policy.layers_of(model)) if i % policy.pipeline < policy.recomputing)
    twice = model.recomputed_flops(policy.recompute) * (again / model.layers)
    done = flops + global_batch * twice / policy.recompute_every
    peak = cluster.gpus * cluster.gpu.peak_flops[policy.precision]
    return Prediction(
        step_seconds=step,
        tflops_per_gpu=done / step / cluster.gpus / 1e12,
        hfu=done / step / peak,
        mfu=flops / step / peak,
        memory_bytes=held,
        fits=held <= cluster.gpu.memory_bytes,
        breakdown={"seconds": seconds, "bytes": parts},
    )


def timeline(
    model: Model, policy: Policy, cluster: Cluster, *, global_batch: int, constants: Constants = MEASURED
) -> Timeline:
    """The pipeline of one step, event by event, with the layers, embedding and head where the policy puts them.

    Parameters
    ----------
    model : the transformer to be trained.
    policy : the policy to be priced.
    cluster : the GPUs and the links between them.
    global_batch : sequences in a step, over all ranks.
    constants : what a real machine reaches of its data sheet.
    """
    policy.check(model, cluster, global_batch)
    setting = PolicySetting(model, cluster, global_batch, constants)
    forward, backward, weights = (each.tolist() for each in _pieces(policy, setting, _of_stages(policy, setting)))
    m = int(Policies.of([policy]).micro_batches(setting)[0])
    return play(policy.schedule, m, forward, backward, weights, policy.chunks)


def stage_memory(
    model: Model, policy: Policy, cluster: Cluster, kept: float, *, global_batch: int, constants: Constants = MEASURED
) -> list[float]:
    """Bytes on a rank of each stage that keeps so many micro-batches while one of its layers goes backward.

    Parameters
    ----------
    model : the transformer to be trained.
    policy : the policy to be priced.
    cluster : the GPUs and the links between them.
    kept : micro-batches whose activations a stage keeps at once; of one chunk of several, that share of one.
    global_batch : sequences in a step, over all ranks.
    constants : what a real machine reaches of its data sheet.
    """
    policies, setting = Policies.of([policy]), PolicySetting(model, cluster, global_batch, constants)
    stages = replace(PipelineStages.uneven(policy, setting), in_flight=np.full((policy.pipeline, 1), kept))
    each = [PipelineStages(*(column[[i]] for column in vars(stages).values())) for i in range(policy.pipeline)]
    parts = [memory(policies, setting, stage, worker_memory(policies, setting, stage)) for stage in each]
    return [float(sum(numbers[0] for numbers in part.values())) for part in parts]


def _of_stages(policy: Policy, setting: PolicySetting) -> list[StepParts]:
    """The seconds of the pieces of each stage."""
    again, kept = StepParts.both(Policies.of([policy]), setting)
    return [again if stage < policy.recomputing else kept for stage in range(policy.pipeline)]


def _pieces(policy: Policy, setting: PolicySetting, of: list[StepParts]) -> StageSeconds:
    """Of every piece of the model in order, the first with the embedding and the last with the head."""
    pieces = [of[i % policy.pipeline].piece(layers) for i, layers in enumerate(policy.layers_of(setting.model))]
    for i, end in ((0, of[0].embedding), (-1, of[0].head)):
        pieces[i] = pieces[i].times(1, end.seconds)
    return StageSeconds(*map(np.concatenate, zip(*pieces, strict=True)))


def _uneven(policy: Policy, setting: PolicySetting) -> StepEstimate:
    """A policy whose stages differ."""
    policies, of = Policies.of([policy]), _of_stages(policy, setting)
    m, p, each = policies.micro_batches(setting), policy.pipeline, _pieces(policy, setting, of)
    chunks = [policy.layers_of(setting.model)[stage::p] for stage in range(p)]
    pieces = [[parts.spare(layers) for layers in own] for parts, own in zip(of, chunks, strict=True)]
    spare = SpareSeconds(*np.array(pieces).sum(axis=1).swapaxes(0, 1))

    def pipeline(more: StageSeconds, once: Numbers) -> tuple[dict[str, Numbers], int]:
        v, last = policy.chunks, once[:, 0]
        longer = StageSeconds(*(a + np.tile(b[:, 0] / v, v) for a, b in zip(each, more, strict=True)))
        work = m * (longer.forward + longer.backward).reshape(-1, p).sum(axis=0) + last
        lasts = pipeline_seconds(policy.schedule, int(m[0]), *longer, v, last)
        slowest = int(work.argmax())
        at, own = of[slowest], chunks[slowest]
        end = at.embedding.times(slowest == 0, at.head.times(slowest == p - 1, Pass(*np.zeros((6, 1)))))
        parts = at.parts(sum(own), np.sum([at.exposed(layers) for layers in own], axis=0), end)
        bubble = np.maximum(lasts - work[[slowest]], 0)
        return {name: m * seconds for name, seconds in parts.items()} | {"bubble": bubble}, slowest

    return finish(policies, setting, PipelineStages.uneven(policy, setting), spare, pipeline)
