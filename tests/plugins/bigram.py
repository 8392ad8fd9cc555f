"""A language model in one file, and how its layers are split over tensor ranks."""

from collections import OrderedDict

from torch import nn

from commeff.experiments.tasks import Language
from commeff.experiments.tasks.models import seeded
from commeff.sharding import ColumnParallel, ParallelInput, RowParallel, VocabularyParallel


def network():
    inner = OrderedDict(widen=nn.Linear(64, 256), relu=nn.ReLU(), project=nn.Linear(256, 64))
    parts = {"tokens": nn.Embedding(256, 64), "inner": nn.Sequential(inner), "head": nn.Linear(64, 256)}
    return nn.Sequential(OrderedDict(parts))


class Bigram(Language):
    """The next byte from the last one alone."""

    def model(self):
        return seeded(network, seed=0)

    def plan(self, model):
        inside = {"inner": ParallelInput(), "inner.widen": ColumnParallel(), "inner.project": RowParallel()}
        return {"tokens": VocabularyParallel(), **inside, "head": VocabularyParallel()}
