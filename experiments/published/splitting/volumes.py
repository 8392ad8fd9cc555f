"""Bytes that axes carry and bytes that live, counted, beside their formulas."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.nn import functional as F

from commeff import DistributedOptimizer, methods
from commeff.experiments.published.splitting.exactness import PATIENCE, Composition
from commeff.experiments.published.splitting.small import (
    BATCH,
    CONTEXT,
    LAYERS,
    WIDTH,
    RandomTokens,
)
from commeff.experiments.run.crew import Fork, crew
from commeff.experiments.tasks.language import Llama
from commeff.experiments.tasks.language.plans import LLAMA_LAYERS
from commeff.parallelism import Mesh
from commeff.parallelism.account import Account, live_bytes
from commeff.parallelism.kept import Kept
from commeff.parallelism.recompute import recompute
from commeff.training.sharding import on_mesh
from commeff.training.task import objective

NUMBER = 8  # bytes, float64
TOKENS = BATCH * CONTEXT
SHAPES = [  # layers, width, heads, kv_heads, inner, vocabulary, batch, tokens
    (1, 64, 4, 1, 64, 50, 2, 32),
    (2, 64, 4, 2, 128, 200, 3, 40),
    (4, 128, 8, 8, 256, 256, 2, 64),
    (6, 96, 4, 2, 384, 1000, 2, 32),
    (3, 128, 8, 4, 512, 100, 4, 16),
]
STATES = {0: (16, 0), 1: (8, 8), 2: (4, 12), 3: (0, 16)}  # bytes a parameter with AdamW: at every rank, and shared


def psi() -> int:
    """Parameters of the small model."""
    return sum(parameter.numel() for parameter in RandomTokens().model().parameters())


def axis_rows() -> list[dict[str, Any]]:
    """Bytes that a rank sends along an axis in a step of two ranks, by our count, by torch's operations, by formula."""
    norms, block = (2 * LAYERS + 1) * WIDTH, TOKENS * WIDTH
    loss = 3 * TOKENS
    cases = [
        ("tensor", Composition("tensor 2", {"tensor": 2}), "(4 L + 2) b t d + loss", (4 * LAYERS + 2) * block + loss),
        (
            "tensor",
            Composition("tensor 2, sequence", {"tensor": 2}, {"sequence": True}),
            "(4 L + 2) b t d + loss + norms",
            (4 * LAYERS + 2) * block + loss + norms,
        ),
        *(
            ("shard", Composition(f"shard 2, ZeRO {stage}", {"shard": 2}, {"zero": stage}), "2 Psi (S-1)/S", psi())
            for stage in (0, 1, 2)
        ),
        ("shard", Composition("shard 2, ZeRO 3", {"shard": 2}, {"zero": 3}), "3 Psi (S-1)/S", 3 * psi() / 2),
        (
            "pipeline",
            Composition("pipeline 2, 1f1b", {"pipeline": 2}, {"micro_batches": 2}),
            "b t d a boundary and direction",
            block,
        ),
    ]

    def member(fork: Fork) -> list[tuple[float, float]]:
        torch.set_num_threads(1)
        with fork.group(PATIENCE):
            return [_step(place, axis) for axis, place, _, _ in cases]

    with crew(2, member) as forks:
        first = forks.results()[0]
    return [
        {
            "split": place.name,
            "axis": axis,
            "formula": formula,
            "by formula": NUMBER * numbers,
            "by our axes": ours,
            "by torch's operations": counted,
        }
        for (axis, place, formula, numbers), (ours, counted) in zip(cases, first, strict=True)
    ]


def _step(place: Composition, axis: str) -> tuple[float, float]:
    """What this rank sends in one forward and backward and the exchange of its row: our count, and the account's."""
    mesh, task = Mesh(**place.degrees), RandomTokens(1)
    worker = on_mesh(task, mesh, **place.options)
    with Account() as account:
        worker.compute(objective(task, worker.computation.vocabulary), [task.batch(0, range(1))], 0)
        worker.load(worker.parameters)
    return mesh.axis(axis).bytes, account.sent(mesh.group(axis))


def memory_rows() -> list[dict[str, Any]]:
    """Bytes that live between two steps of AdamW in fp32 on two shard ranks, by stage."""

    def member(fork: Fork) -> dict[int, tuple[int, int]]:
        torch.set_num_threads(1)
        with fork.group(PATIENCE):
            return {stage: _living(stage) for stage in STATES}

    with crew(2, member) as forks:
        found = forks.results()[0]
    rows = []
    for stage, (live, parameters) in found.items():
        everywhere, shared = STATES[stage]
        expected = (everywhere + shared / 2) * parameters
        words = " + ".join([f"{everywhere} Psi"] * (everywhere > 0) + [f"{shared} Psi/S"] * (shared > 0))
        rows.append({"ZeRO": stage, "formula": words, "by formula": expected, "live": live, "ratio": live / expected})
    return rows


def _living(stage: int) -> tuple[int, int]:
    before, mesh = live_bytes(), Mesh(shard=2)
    torch.manual_seed(1)
    model = Llama(256, layers=2, width=192, heads=4, inner=512)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    adam = methods.psgd(partial(torch.optim.AdamW, lr=0.01))
    optimizer = DistributedOptimizer(model, adam, mesh=mesh, zero=stage, bucket_mb=1.0)
    tokens = torch.randint(256, (1, 9))
    for _ in range(2):
        optimizer.zero_grad()
        F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
    optimizer.zero_grad()
    return live_bytes() - before, parameters


def activation_rows() -> list[dict[str, Any]]:
    """Numbers that autograd keeps for backward, by recomputation: (10 d + 4 f + heads) a token and layer, or d."""
    rows = []
    for shape in SHAPES:
        layers, d, heads, kv_heads, f, vocabulary, b, t = shape
        tokens = torch.randint(vocabulary, (b, t + 1), generator=torch.Generator().manual_seed(3))
        for kind, layer in {"none": 10 * d + 4 * f + heads, "selective": 6 * d + 4 * f, "full": d}.items():
            model = Llama(vocabulary, layers, d, heads, kv_heads, f)
            recompute(model, LLAMA_LAYERS, kind)
            with Kept(model.parameters()) as kept:
                F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
            expected = b * t * (layers * layer + 3 * d + vocabulary)
            rows.append(
                {
                    "layers, d, heads, kv heads, f, V, b, t": ", ".join(map(str, shape)),
                    "recompute": kind,
                    "by formula": expected,
                    "kept": kept.most / 4,
                    "ratio": kept.most / 4 / expected,
                }
            )
    return rows
