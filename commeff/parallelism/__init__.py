"""One worker's model on several processes, split from outside: the model's own code knows nothing of it.

A run's processes form a mesh of worker x pipeline x shard x tensor. The processes that hold the same piece of different
workers form the worker axis's groups, in which the strategy talks: a method acts on pieces as it acts on whole models.

    mesh = Mesh(worker=2, tensor=2)                                  # 4 processes
    split(model, llama_plan(model), mesh.axis("tensor"))             # this process keeps its piece of each matrix
    optimizer = DistributedOptimizer(model, strategy, mesh=mesh)
    cross_entropy(model(tokens), targets, mesh.axis("tensor")).backward()
    optimizer.step()
"""

from commeff.parallelism.collectives import Axis
from commeff.parallelism.computation import Computation, Objective, OnePass
from commeff.parallelism.initialise import Spread, drawn, materialise
from commeff.parallelism.layers import Layers
from commeff.parallelism.mesh import AXES, Mesh
from commeff.parallelism.pieces import Shard
from commeff.parallelism.plan import (
    ColumnParallel,
    HeadParallel,
    ParallelInput,
    Plan,
    RowParallel,
    SequenceParallel,
    Style,
    VocabularyParallel,
)
from commeff.parallelism.tensor import split
from commeff.parallelism.vocabulary import cross_entropy

__all__ = [
    "AXES",
    "Axis",
    "ColumnParallel",
    "Computation",
    "HeadParallel",
    "Layers",
    "Mesh",
    "Objective",
    "OnePass",
    "ParallelInput",
    "Plan",
    "RowParallel",
    "SequenceParallel",
    "Shard",
    "Spread",
    "Style",
    "VocabularyParallel",
    "cross_entropy",
    "drawn",
    "materialise",
    "split",
]
