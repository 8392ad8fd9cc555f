"""What frameworks do unless they are told otherwise: fields of a `Policy` under one name, and what they cannot run.

All three measured tables are of Megatron-LM and its descendants, so no constant of another framework can be told from
them, and none is made up: a profile says what is sent when and what lies in memory, and kernels cost what `MEASURED`
says. Only "ideal" has constants of its own, those of a data sheet; no step is faster than its.

Origins, read in the sources:

- megatron: Megatron-LM core 0.20. `LinearWithGradAccumulationAndAsyncCommunication` sends gradients of inputs behind
  those of weights; `overlap_grad_reduce` and `overlap_param_gather` are off. Gradients are views of one fp32 buffer
  (`_ParamAndGradBuffer`), so no bucket is copied. Without `--fp8-param-gather` weights are kept in bf16, and
  Transformer Engine 2.20 keeps them in fp8 and transposed until a step changes them (`quantize_weight`).
- fsdp: FSDP2 as torchtitan 0.2.2 applies it. Each block is a unit, fetched one ahead; shards are fp32, gathered in bf16
  and reduced in fp32 (`mixed_precision_reduce`). Tensor ranks split sequences and wait for their messages
  (`enable_async_tensor_parallel` is off). It has gpipe, 1f1b and interleaved pipelines, and no ZeRO-1. Keys and values
  go round the ranks of a sequence.
- deepspeed: DeepSpeed 0.19. Gradients are summed and sent in the model's 16 bits (`get_data_types`,
  `communication_data_type`), in buckets of `reduce_bucket_size`; `overlap_comm` is off but for ZeRO-3, which gathers
  every matrix by itself. Its pipeline is 1F1B and refuses ZeRO-2 and ZeRO-3. Ranks of a sequence split the heads of
  attention (`DistributedAttention`).
- ideal: all hides that may, and nothing is lost of a data sheet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from commeff.planner.constants import MEASURED, Constants
from commeff.planner.policies import CONTEXTS, SCHEDULES, STATES
from commeff.planner.policy import Policy
from commeff.planner.refusals import Refusal

IDEAL = replace(
    MEASURED,
    gemm_efficiency=1.0,
    operand_ratio=float("inf"),
    gemm_ramp=0.0,
    memory_efficiency=1.0,
    kernel_seconds=0.0,
    hidden_share=1.0,
    reserve_bytes=0.0,
)


@dataclass(frozen=True)
class Framework:
    """What a framework does.

    Attributes
    ----------
    always : fields of a policy.
    stages : fields by stage of ZeRO, beside or instead of `always`.
    zero : the stage unless one is given.
    refusals : what it has not.
    constants : what a machine reaches of its data sheet.
    """

    always: Mapping[str, Any]
    stages: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    zero: int = 0
    refusals: tuple[Refusal, ...] = ()
    constants: Constants = MEASURED

    def fields(self, precision: str, zero: int | None = None) -> dict[str, Any]:
        """The fields of a `Policy` of a stage of ZeRO.

        >>> FRAMEWORKS["megatron"].fields("bf16", 1)
        {'zero': 1, 'overlap': 'tensor', 'bucket': 0, 'fp8_copies': False}
        """
        zero, plain = self.zero if zero is None else zero, Policy()
        stages = [{"zero": stage, **self.always, **self.stages.get(stage, {})} for stage in range(4)]
        defaults = {name: getattr(plain, name) for stage in stages for name in stage}
        fields = {**defaults, **stages[zero]}
        narrow = {"half_gradients": STATES[precision][0] == 2, "fp8_copies": precision == "fp8"}
        return {name: value if narrow.get(name, True) else False for name, value in fields.items()}


def _runs(name: str, *schedules: str) -> Refusal:
    places = [SCHEDULES.index(schedule) for schedule in schedules]
    return Refusal(
        lambda p: (p.pipeline > 1) & ~np.isin(p.schedule, places),
        lambda p: f"schedule must be {' or '.join(schedules)} with framework={name}, got {p.schedule}",
    )


def _splits_sequences(name: str, by: str) -> Refusal:
    return Refusal(
        lambda p: (p.context > 1) & (p.context_by != CONTEXTS.index(by)),
        lambda p: f"context_by must be {by} with framework={name}, got {p.context_by}",
    )


FRAMEWORKS: dict[str, Framework] = {
    "megatron": Framework(
        {"overlap": "tensor", "bucket": 0, "fp8_copies": True}, refusals=(_runs("megatron", "1f1b", "interleaved"),)
    ),
    "fsdp": Framework(
        {"overlap": "data", "bucket": 0},
        {3: {"fp32_parameters": True}},
        zero=3,
        refusals=(
            _runs("fsdp", "gpipe", "1f1b", "interleaved"),
            _splits_sequences("fsdp", "ring"),
            Refusal(
                lambda p: (p.zero < 2) & (p.shard > 1),
                lambda p: f"zero must be 2 or 3 with framework=fsdp where ranks share a worker, got {p.zero}",
            ),
            Refusal(
                lambda p: (p.tensor > 1) & ~p.sequence_parallel,
                lambda p: f"sequence_parallel must be true with framework=fsdp and tensor={p.tensor}, got false",
            ),
        ),
    ),
    "deepspeed": Framework(
        {"overlap": "none", "half_gradients": True},
        {3: {"overlap": "data", "unit": 0}},
        refusals=(
            _runs("deepspeed", "1f1b"),
            _splits_sequences("deepspeed", "all_to_all"),
            Refusal(
                lambda p: (p.zero >= 2) & (p.pipeline > 1),
                lambda p: f"zero must be 0 or 1 with framework=deepspeed and a pipeline, got {p.zero}",
            ),
        ),
    ),
    "ideal": Framework({"overlap": "full", "bucket": 0}, constants=IDEAL),
}
