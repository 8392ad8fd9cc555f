"""The global physical constants of the planner: seven numbers, shared by every model, policy, cluster and table.

Nothing else in this package is fitted. What a mechanism moves or computes is counted, and links carry what their
cluster says; these say how fast real GPUs do the rest. No row of a table has a constant of its own.

Four were fitted on three measured tables, each of the same weight, all A100-80GB: vtrain_single.csv under both readings
of its recomputation, korthikanti2022_layer.csv and megatron2021.csv. The fit took hiding for a constant of its own; one
of today (`python -m commeff.experiments.studies.planner fit`) ends elsewhere in the same flat valley.

Three are not fitted. `operand_ratio`, recalled, makes large bf16 products reach 570 of an H100's 989 TFLOP/s where an
A100 reaches 215 of 312. `hidden_share` is counted: while NCCL runs, its 16 blocks hold as many of an A100's 108
multiprocessors, and the rest compute. `reserve_bytes`, recalled, is a CUDA context with the kernels of PyTorch and the
workspaces of its libraries.

`HELD_OUT` says how far to trust a prediction. The fit is repeated without each table in turn; the two numbers are the
5th and the 95th percentile of measured over predicted seconds in the table that was left out, all three tables
together, each of the same weight (results/planner/report.md).

`TIE` says how far to trust the order of two policies. What two predictions for one model have in common cancels in
their ratio. Of all pairs of rows of a left-out table with one model, batch and number of GPUs, nine of ten predicted
ratios, slower over faster, are at most so many times the measured one.
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
    hidden_share : share of hideable communication that hides, unless overlap="full": while it is under way, a GPU
        computes more slowly.
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
HELD_OUT = (0.85, 1.27)  # measured over predicted seconds, 90 % of tables that the fit has not seen
TIE = 1.14  # predicted over measured ratio of two policies, 90 % of such tables' pairs
