"""One worker's model on several processes, split from outside: the model's own code knows nothing of it.

A run's processes form a mesh of worker x pipeline x shard x tensor. The processes that hold the same piece of different
workers form the worker axis's groups, in which the strategy talks: a method acts on pieces as it acts on whole models.

    mesh = Mesh(worker=2, tensor=2)                                  # 4 processes
    split(model, llama_plan(model), mesh.axis("tensor"))             # this process keeps its piece of each matrix
    optimizer = DistributedOptimizer(model, strategy, mesh=mesh)
    cross_entropy(model(tokens), targets, mesh.axis("tensor")).backward()
    optimizer.step()
"""

from commeff.sharding.collectives import Axis
from commeff.sharding.computation import Computation, Objective, OnePass, score
from commeff.sharding.layers import Layers
from commeff.sharding.mesh import AXES, Mesh
from commeff.sharding.plan import (
    ColumnParallel,
    HeadParallel,
    ParallelInput,
    Plan,
    RowParallel,
    SequenceParallel,
    Style,
    VocabularyParallel,
)
from commeff.sharding.shard import Shard
from commeff.sharding.tensor import split
from commeff.sharding.vocabulary import LossLinear, cross_entropy, guesses, token_losses

__all__ = [
    "AXES",
    "Axis",
    "ColumnParallel",
    "Computation",
    "HeadParallel",
    "Layers",
    "LossLinear",
    "Mesh",
    "Objective",
    "OnePass",
    "ParallelInput",
    "Plan",
    "RowParallel",
    "SequenceParallel",
    "Shard",
    "Style",
    "VocabularyParallel",
    "cross_entropy",
    "guesses",
    "score",
    "split",
    "token_losses",
]
