"""Rows in pieces: compressors of one scale or one common choice under the methods, and a law that can fail."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from commeff import methods
from commeff.compressors import QSGD, Int8, Natural, RandomK, Repeated, TernGrad
from commeff.compressors.reductions import row_norm
from commeff.core import Traits
from commeff.core.local import Local
from commeff.core.strategy import Strategy, Transform
from commeff.laws import MethodCase, acts_on_pieces
from commeff.sharding.pieces import exact_on_pieces

SGD = partial(torch.optim.SGD, lr=0.05, momentum=0.5)
COMMON = RandomK(ratio=0.3, shared=True)
CASES = {
    "diana": lambda n: methods.diana(SGD, QSGD(2)),
    "made contractive": lambda n: methods.mem_sgd(SGD, QSGD(1)),
    "again and again": lambda n: methods.ef21(SGD, Repeated(TernGrad(), 2)),
    "common choices": lambda n: methods.ef21(SGD, COMMON),
    "a server in shards": lambda n: methods.double_squeeze(SGD, COMMON, server="sharded"),
    "bytes": lambda n: methods.sparse_loco(SGD, Int8(block=None), period=2),
    "powers of two": lambda n: methods.compressed_sgd(SGD, Natural()),
}


@pytest.mark.parametrize("name", CASES)
def test_compressors_of_the_whole_row_are_exact(name):
    strategy = CASES[name](4)
    assert exact_on_pieces(strategy.gradients)
    assert exact_on_pieces(strategy.parameters)
    acts_on_pieces(MethodCase(name, CASES[name]))


class Unit(Transform):
    """v / |v|, where |v| is that of the piece."""

    traits = Traits(scope="whole", exact_on_pieces=True)

    def __call__(self, vectors, communicator):
        return vectors / row_norm(vectors)


class Shaken(Transform):
    """v with another number for every rank added."""

    traits = Traits(scope="whole", exact_on_pieces=True)

    def start(self, v, layout, communicator):
        self._shift = 1e-14 * v.shape[1] + 1e-13 * float(layout.places.first(0) if layout.places else 0)

    def __call__(self, vectors, communicator):
        return vectors + self._shift


@pytest.mark.parametrize(
    ("kind", "words"), [(Unit, "the trajectory differs by"), (Shaken, "what two ranks hold differs")]
)
def test_what_is_not_exact_is_found(kind, words):
    case = MethodCase("wrong", lambda n: Strategy(Local(SGD), gradients=kind()))
    with pytest.raises(AssertionError, match=words):
        acts_on_pieces(case)
