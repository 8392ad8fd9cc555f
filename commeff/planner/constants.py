"""The global physical constants of the planner: seven numbers, shared by every model, policy, cluster and table.

Nothing else in this package is fitted. What a mechanism moves or computes is counted, and links carry what their
cluster says; these say how fast real GPUs do the rest. No row of a table has a constant of its own.

Five are what `python -m commeff.experiments.studies.planner fit` found on three measured tables, each of the
same weight, all A100-80GB: vtrain_single.csv under both readings of its recomputation, korthikanti2022_layer.csv and
megatron2021.csv.
Two of the five lie on the bounds that the fit was given, `memory_efficiency` above and `hidden_share` below. They were
found before the planner knew that tied embeddings can meet inside a node. A fit of today ends elsewhere in the same
flat valley (`gemm_ramp` 38, `hidden_share` 0.27), where its loss is 0.3 % lower: the tables hardly tell these two.
`kernel_seconds` was 45.7 us until rings took n-1 latencies of 1.9 us, as NCCL has it, and not ceil(log2 n) of 4 us.

Two are recalled: `operand_ratio` makes large bf16 products reach 570 of an H100's 989 TFLOP/s where an A100 reaches 215
of 312; `reserve_bytes` is a CUDA context with the kernels of PyTorch and the workspaces of its libraries.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    """How much of its data sheet a machine reaches.

    Parameters
    ----------
    gemm_efficiency : share of the tensor peak in the main loop of a matrix product whose operands are at hand.
    operand_ratio : bandwidth at which operands reach the tensor cores, over the memory's; caches grow with memories,
        but slower than peaks, so newer GPUs reach a smaller share of theirs.
    gemm_ramp : columns of the inner dimension that filling the pipeline and writing a tile back are worth.
    memory_efficiency : share of the memory bandwidth that element-wise kernels reach.
    kernel_seconds : what a framework spends on the CPU to issue one kernel.
    hidden_share : share of hideable communication that overlap="partial" hides.
    reserve_bytes : memory that a CUDA context and the libraries take.
    """

    gemm_efficiency: float
    operand_ratio: float
    gemm_ramp: float
    memory_efficiency: float
    kernel_seconds: float
    hidden_share: float
    reserve_bytes: float


MEASURED = Constants(
    gemm_efficiency=0.861,
    operand_ratio=8,
    gemm_ramp=16,
    memory_efficiency=0.85,
    kernel_seconds=45.9e-6,
    hidden_share=0.85,
    reserve_bytes=1.5e9,
)
