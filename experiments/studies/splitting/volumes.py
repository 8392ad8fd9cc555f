"""Bytes that axes carry and bytes that live, counted, beside their formulas."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.nn import functional as F

from commeff import DistributedOptimizer, methods
from commeff.experiments.studies.splitting.account import Account, live_bytes
from commeff.experiments.studies.splitting.exactness import Composition, on_processes
from commeff.experiments.studies.splitting.kept import Kept
from commeff.experiments.studies.splitting.small import (
    BATCH,
    CONTEXT,
    HEADS,
    LAYERS,
    VOCABULARY,
    WIDTH,
    RandomTokens,
)
from commeff.experiments.tasks.language import Llama
from commeff.experiments.tasks.language.plans import LLAMA_LAYERS
from commeff.sharding import Mesh
from commeff.sharding.layers import ranks_of
from commeff.sharding.recompute import recompute
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
    """Bytes that the first rank sends along an axis in a step: by our count, by torch's operations, by formula."""
    norms, block, loss = (2 * LAYERS + 1) * WIDTH, TOKENS * WIDTH, 3 * TOKENS
    two, full = {"tensor": 2}, {"recompute": "full"}
    sums, copies = (4 * LAYERS + 2) * block, LAYERS * 2 * WIDTH // HEADS * WIDTH
    whole, parts = RandomTokens(1).model(), 4
    at = ranks_of(whole, LLAMA_LAYERS, range(2))
    of_stage = sum(parameter.numel() for name, parameter in whole.named_parameters() if 0 in at[name])
    cases = [
        ("tensor", Composition("tensor 2", two), "(4 L + 2) b t d + loss", sums + loss),
        (
            "tensor",
            Composition("tensor 2, sequence", two, {"sequence": True}),
            "(4 L + 2) b t d + loss + norms",
            sums + loss + norms,
        ),
        (
            "tensor",
            Composition("tensor 2, layers recomputed", two, full),
            "(5 L + 2) b t d + loss",
            sums + LAYERS * block + loss,
        ),
        (
            "tensor",
            Composition("tensor 4 over 2 KV heads", {"tensor": 4}),
            "3/2 ((4 L + 2) b t d + loss) + L 2 d d/heads",
            3 / 2 * (sums + loss) + copies,
        ),
        *(
            ("shard", Composition(f"shard 2, ZeRO {stage}", {"shard": 2}, {"zero": stage}), "2 Psi (S-1)/S", psi())
            for stage in (0, 1, 2)
        ),
        ("shard", Composition("shard 2, ZeRO 3", {"shard": 2}, {"zero": 3}), "3 Psi (S-1)/S", 3 * psi() / 2),
        (
            "shard",
            Composition(
                "pipeline 2 x shard 2, ZeRO 3, M = 4",
                {"pipeline": 2, "shard": 2},
                {"zero": 3, "micro_batches": parts},
            ),
            "(M + 2) Psi of the stage (S-1)/S",
            (parts + 2) * of_stage / 2,
        ),
        (
            "pipeline",
            Composition("pipeline 2, 1f1b", {"pipeline": 2}, {"micro_batches": 2}),
            "b t d a boundary and direction",
            block,
        ),
        (
            "pipeline",
            Composition("pipeline 2, tied embeddings", {"pipeline": 2}, {"micro_batches": 2}, tied=True),
            "b t d + V d",
            block + VOCABULARY * WIDTH,
        ),
    ]

    def on(ranks: int) -> dict[str, tuple[float, float]]:
        of_size = [(place, axis) for axis, place, *_ in cases if place.ranks == ranks]
        bytes_each = on_processes(ranks, lambda: [_step(*case) for case in of_size])[0]
        return dict(zip([place.name for place, _ in of_size], bytes_each, strict=True))

    counted = on(2) | on(4)
    return [
        {
            "split": place.name,
            "axis": axis,
            "formula": formula,
            "by formula": NUMBER * numbers,
            "by our axes": counted[place.name][0],
            "by torch's operations": counted[place.name][1],
        }
        for axis, place, formula, numbers in cases
    ]


def _step(place: Composition, axis: str) -> tuple[float, float]:
    """What this rank sends in one forward and backward and the exchange of its row: our count, and the account's.

    It is the second one: before the first, stages of a pipeline tell each other shapes, once.
    """
    mesh, task = Mesh(**place.degrees), RandomTokens(1, place.tied)
    worker = on_mesh(task, mesh, **place.options)
    criterion, family = objective(task, worker.computation.vocabulary), mesh.axis(axis).family
    for step in range(2):
        before = sum(part.bytes for part in family)
        with Account() as account:
            worker.compute(criterion, [task.batch(step, range(1))], step)
            worker.load(worker.parameters)
    return sum(part.bytes for part in family) - before, sum(account.sent(part.group) for part in family)


def memory_rows() -> list[dict[str, Any]]:
    """Bytes that live between two steps of AdamW in fp32 on two shard ranks, by stage."""
    results, rows = on_processes(2, lambda: [_living(stage) for stage in STATES])[0], []
    for stage, (live, parameters) in zip(STATES, results, strict=True):
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
            with Kept(model.parameters()) as saved:
                F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
            expected = b * t * (layers * layer + 3 * d + vocabulary)
            rows.append(
                {
                    "layers, d, heads, kv heads, f, V, b, t": ", ".join(map(str, shape)),
                    "recompute": kind,
                    "by formula": expected,
                    "kept": saved.most / 4,
                    "ratio": saved.most / 4 / expected,
                }
            )
    return rows
