"""What a rank saves is enough to go on from, bit for bit, on the same mesh."""

from __future__ import annotations

from functools import partial

import torch

from commeff import DistributedOptimizer, methods
from commeff.compressors import TopK
from commeff.experiments.tasks.language import Llama, llama_plan
from commeff.sharding import Mesh, cross_entropy, split
from tests.laws.processes import on_processes, through_a_file

ADAM = partial(torch.optim.AdamW, lr=0.01)
STRATEGIES = {
    "mem_sgd": lambda: methods.mem_sgd(ADAM, TopK(ratio=0.1)),
    "streaming_diloco": lambda: methods.streaming_diloco(ADAM, period=3, fragments=2),
}


def begun(mesh, strategy):
    torch.manual_seed(0)
    model = Llama(16, layers=1, width=16, heads=4, kv_heads=2, inner=32)
    split(model, llama_plan(model), mesh.axis("tensor"), sequence=True)
    return model, DistributedOptimizer(model, strategy, mesh=mesh, pieces="own", clip=0.5)


def go_on(mesh, model, optimizer, steps):
    for step in steps:
        tokens = torch.randint(16, (2, 9), generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        cross_entropy(model(tokens[:, :-1]), tokens[:, 1:], mesh.axis("tensor")).backward()
        optimizer.step()


def test_pieces_and_shards_go_on_from_what_they_saved():
    def member():
        for degrees in ({"tensor": 2}, {"shard": 2}):
            mesh = Mesh(**degrees)
            for strategy in STRATEGIES.values():
                undisturbed = begun(mesh, strategy())
                go_on(mesh, *undisturbed, range(5))
                stopped, resumed = begun(mesh, strategy()), begun(mesh, strategy())
                go_on(mesh, *stopped, range(2))
                resumed[1].load_state_dict(through_a_file(stopped[1].state_dict()))
                go_on(mesh, *resumed, range(2, 5))
                pairs = zip(undisturbed[0].parameters(), resumed[0].parameters(), strict=True)
                assert all(torch.equal(a, b) for a, b in pairs), degrees

    on_processes(2, member)
