"""The names that a policy chooses from, and what precisions mean. Arrays of policies hold the places of names."""

SCHEDULES = ("naive", "gpipe", "1f1b", "interleaved", "zero_bubble")
RECOMPUTES = ("none", "selective", "full")
OVERLAPS = ("none", "partial", "full")

# Bytes for each parameter: weights, gradients, optimizer (Adam: two moments, and an fp32 copy of 16-bit weights). With
# bf16, gradients are summed in fp32: 18 in all; with fp16 they travel as fp16 and are copied to fp32 for the step: 20;
# fp32 16 (the table of Megatron-LM's distributed optimizer). ZeRO's own count, 16, has 2-byte gradients.
STATES = {"fp32": (4, 4, 8), "tf32": (4, 4, 8), "bf16": (2, 4, 12), "fp16": (2, 2, 16), "fp8": (2, 4, 12)}
