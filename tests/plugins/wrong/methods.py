"""Methods that break a law, each in its own way."""

import torch

from commeff import Local, Strategy, Transform
from commeff.compressors import Compressor, DenseMessage
from commeff.core import Traits
from commeff.core.local import OptimizerFactory
from commeff.transforms import Average, as_encoder


class _Scales(Transform):
    def __init__(self):
        self.inner = Average()

    def __call__(self, vectors, communicator):
        return self.inner(vectors.mul_(0.5), communicator)


def writes_into_its_input(optimizer: OptimizerFactory) -> Strategy:
    """Halves the gradient where it lies."""
    return Strategy(Local(optimizer), gradients=_Scales())


class _Remembers(Transform):
    rows = ("last",)

    def start(self, v, layout, communicator):
        super().start(v, layout, communicator)
        self.last, self.velocity = torch.zeros_like(v), torch.zeros_like(v)

    def __call__(self, vectors, communicator):
        self.last, self.velocity = self.velocity, 0.9 * self.velocity + vectors
        return communicator.average(DenseMessage.of(self.velocity))


def keeps_undeclared_memory(optimizer: OptimizerFactory) -> Strategy:
    """A velocity that no checkpoint holds."""
    return Strategy(Local(optimizer), gradients=_Remembers())


class _Branches(Transform):
    def __call__(self, vectors, communicator):
        mean = communicator.average(DenseMessage.of(vectors))
        return mean if len(communicator.workers) == communicator.n else 0.5 * mean


def looks_at_who_is_here(optimizer: OptimizerFactory) -> Strategy:
    """Another update when it does not host everybody."""
    return Strategy(Local(optimizer), gradients=_Branches())


class _MeanOfRows(Transform):
    def __call__(self, vectors, communicator):
        return vectors.mean(0).expand_as(vectors)


def averages_for_free(optimizer: OptimizerFactory) -> Strategy:
    """A mean over the rows that are here, with nothing sent."""
    return Strategy(Local(optimizer), gradients=_MeanOfRows())


class _Noisy(Transform):
    def __call__(self, vectors, communicator):
        return communicator.average(DenseMessage.of(vectors)) * (1 + 0.1 * torch.rand(1))


def draws_globally(optimizer: OptimizerFactory) -> Strategy:
    """Torch's own generator."""
    return Strategy(Local(optimizer), gradients=_Noisy())


class _OnlyHere(Transform):
    def __call__(self, vectors, communicator):
        if 0 in communicator.workers:
            return communicator.average(DenseMessage.of(vectors))
        return vectors


def speaks_on_one_process(optimizer: OptimizerFactory) -> Strategy:
    """Only the process of worker 0 averages: the others never answer."""
    return Strategy(Local(optimizer), gradients=_OnlyHere())


def needs_a_secret(optimizer: OptimizerFactory, secret: float) -> Strategy:
    """A parameter without a default."""
    return Strategy(Local(optimizer), gradients=Average())


def returns_nothing(optimizer: OptimizerFactory) -> Strategy:
    """Forgets to return."""
    Strategy(Local(optimizer), gradients=Average())


class _Listed(Transform):
    def __init__(self):
        self._steps = []

    def __call__(self, vectors, communicator):
        self._steps.append(communicator.step)
        return communicator.average(DenseMessage.of(vectors))


def keeps_a_list(optimizer: OptimizerFactory) -> Strategy:
    """A history of all its steps."""
    return Strategy(Local(optimizer), gradients=_Listed())


class _Halves(Transform):
    traits = Traits(agrees=True)

    def __call__(self, x, communicator):
        return 0.5 * x + 0.5 * communicator.average(DenseMessage.of(x))


def says_that_rows_agree(optimizer: OptimizerFactory) -> Strategy:
    """Half of the way to the mean, and says that it is there."""
    return Strategy(Local(optimizer), parameters=_Halves())


class _Keeps(Transform):
    rows = ("last",)
    traits = Traits(agrees=True, common=("last",))

    def start(self, v, layout, communicator):
        super().start(v, layout, communicator)
        self.last = v.clone()

    def __call__(self, x, communicator):
        self.last = x.clone()
        return communicator.average(DenseMessage.of(x))


def says_that_its_memory_is_common(optimizer: OptimizerFactory) -> Strategy:
    """Each worker remembers what it had before the mean, and says that all remember the same."""
    return Strategy(Local(optimizer), parameters=_Keeps())


class _Velocities(Transform):
    shared = ("velocity",)

    def start(self, v, layout, communicator):
        super().start(v, layout, communicator)
        self.last, self.velocity = torch.zeros_like(v), torch.zeros_like(v)

    def __call__(self, vectors, communicator):
        self.last, self.velocity = self.velocity, 0.9 * self.velocity + vectors
        return communicator.average(DenseMessage.of(self.velocity))


def shares_what_each_worker_has(optimizer: OptimizerFactory) -> Strategy:
    """A velocity of each worker, said to be equal on every process."""
    return Strategy(Local(optimizer), gradients=_Velocities())


class _FeedsBack(Transform):
    rows = ("error",)

    def __init__(self, compressor):
        self.inner = as_encoder(compressor)

    def start(self, v, layout, communicator):
        super().start(v, layout, communicator)
        self.error = torch.zeros_like(v)

    def __call__(self, vectors, communicator):
        message = self.inner.encode(vectors + self.error, communicator, "up")
        self.error = vectors + self.error - message.decode()
        return communicator.average(message)


def feeds_large_errors_back(optimizer: OptimizerFactory, compressor: Compressor) -> Strategy:
    """Error feedback of a compressor as it is, also where its error is larger than what it compresses."""
    return Strategy(Local(optimizer), gradients=_FeedsBack(compressor))


class _Unstarted(Transform):
    rows = ("last",)

    def __init__(self):
        self.inner = Average()

    def start(self, v, layout, communicator):
        self.last = v.clone()

    def __call__(self, vectors, communicator):
        self.last = self.inner(vectors, communicator)
        return self.last.clone()


def forgets_to_start_its_parts(optimizer: OptimizerFactory) -> Strategy:
    """A start that is its own alone."""
    return Strategy(Local(optimizer), gradients=_Unstarted())


class _Cancels(Transform):
    def __call__(self, vectors, communicator):
        once = communicator.average(DenseMessage.of(vectors))
        thrice = communicator.child("thrice").average(DenseMessage.of(3 * vectors + 0.1))
        return once + 1e6 * (thrice - 0.1 - 3 * once)


def makes_much_of_roundings(optimizer: OptimizerFactory) -> Strategy:
    """Adds what would be 0 if sums were exact, a million times."""
    return Strategy(Local(optimizer), gradients=_Cancels())


class _Shrinks(Transform):
    def __init__(self, share):
        self.share = share

    def __call__(self, vectors, communicator):
        mean = communicator.average(DenseMessage.of(vectors))
        return mean if self.share == 1 else mean + vectors.mul_(1 - self.share)


def breaks_beyond_its_default(optimizer: OptimizerFactory, outer: OptimizerFactory, share: float = 1.0) -> Strategy:
    """Writes into its input for another share than 1."""
    assert outer([torch.nn.Parameter(torch.zeros(1))])
    return Strategy(Local(optimizer), gradients=_Shrinks(share))
