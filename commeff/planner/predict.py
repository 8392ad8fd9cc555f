"""One policy priced: step time, utilisation, memory, and the parts they are made of."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from commeff.cluster import Cluster
from commeff.planner.constants import HELD_OUT, MEASURED, Constants
from commeff.planner.estimate import StageSeconds, StepEstimate, StepParts, estimate, finish
from commeff.planner.memory import PipelineStages, memory, worker_memory
from commeff.planner.model import Model
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
    parts = [of[i % policy.pipeline].piece(layers) for i, layers in enumerate(policy.layers_of(setting.model))]

    def seconds(what: str, at_ends: str) -> Numbers:
        values = np.concatenate([getattr(piece, what) for piece in parts])
        values[0] += getattr(of[0].embedding, at_ends)[0]
        values[-1] += getattr(of[0].head, at_ends)[0]
        return values

    return StageSeconds(
        seconds("forward", "forward_total"), seconds("backward", "backward_total"), seconds("weights", "weights")
    )


def _uneven(policy: Policy, setting: PolicySetting) -> StepEstimate:
    """A policy whose stages differ."""
    policies, of = Policies.of([policy]), _of_stages(policy, setting)
    m, p, each = policies.micro_batches(setting), policy.pipeline, _pieces(policy, setting, of)
    stages, work = PipelineStages.uneven(policy, setting), (each.forward + each.backward).reshape(-1, p).sum(axis=0)
    slowest = int(work.argmax())
    pieces, layers, chunks = of[slowest], stages.layers[slowest], policy.layers_of(setting.model)[slowest::p]
    ends = [piece for piece, at in ((pieces.embedding, 0), (pieces.head, p - 1)) if at == slowest]

    def part(*names: str) -> Numbers:
        terms = [layers * getattr(pieces.layer, n) + sum(getattr(end, n) for end in ends) for n in names]
        return m * np.sum(terms, axis=0)

    seconds = {
        "compute": part("forward", "backward"),
        "recompute": part("recomputed"),
        "tensor": part("tensor"),
        "pipeline": m * sum(2 * pieces.boundary - sum(pieces.hidden(n)) for n in chunks),
        "offload": part("host_forward", "host_backward"),
        "bubble": np.maximum(pipeline_seconds(policy.schedule, int(m[0]), *each, policy.chunks) - m * work[slowest], 0),
    }
    priced = finish(policies, setting, of[0], stages, seconds)
    if policy.recompute_stages:  # no more hides than where nobody recomputes: other stages have no more to compute
        least = _uneven(replace(policy, recompute="none", recompute_every=1, recompute_stages=0), setting).step_seconds
        priced.seconds["bubble"] = priced.seconds["bubble"] + np.maximum(least - priced.step_seconds, 0)
    return priced
