"""Laws of the windows that workers draw: an epoch has each once, whoever asks for what; orders are equally frequent."""

from __future__ import annotations

import pickle
from collections import Counter
from itertools import permutations

import numpy as np
import pytest
import torch

from commeff.experiments.tasks.language.draws import ROUNDS, Draws, Epochs, _epoch, dealt, grid, permuted
from commeff.experiments.tasks.language.text import pieces
from commeff.experiments.tasks.sampler import WINDOW

CONTEXT = 8


def drawing(length: int, workers: int, batch: int, partition: str, seed: int = 0) -> Draws:
    own = [pieces(partition, length, workers)]
    return Draws([torch.arange(length)], [1.0], own, seed, CONTEXT, batch, "epoch")


def starts(draws: Draws, workers: int, steps: int) -> np.ndarray:
    """(steps, b, n): where the windows of all workers begin."""
    taken = torch.stack([draws.at(step, range(workers)) for step in range(steps)])
    assert torch.equal(taken, taken[..., :1] + torch.arange(CONTEXT + 1))
    return taken[..., 0].transpose(1, 2).numpy()


@pytest.mark.parametrize("size", [*range(1, 40), 97, 1000, 4095, 4096, 4097, 65537])
def test_every_table_gives_a_permutation(size: int) -> None:
    uniform, (rows, columns) = np.random.default_rng(size), grid(size)
    assert 0 <= rows * columns - size < max(rows, columns)
    turns = uniform.integers(columns, size=(ROUNDS, rows)), uniform.integers(rows, size=(ROUNDS, columns))
    numbers = np.arange(size).reshape(1, -1)
    images = permuted(numbers, size, *turns)
    assert np.array_equal(numbers, np.arange(size)[None])
    assert np.array_equal(np.sort(images), numbers)


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_all_orders_of_few_windows_are_about_equally_frequent(size: int) -> None:
    epochs = Epochs((0, (size + 1) * CONTEXT), CONTEXT, seed=0, number=0)
    assert epochs.size == size
    counts: Counter[tuple[int, ...]] = Counter()
    for order in epochs.starts(np.arange(3000 * size)).reshape(-1, size):
        counts[tuple(order.argsort().tolist())] += 1
    each = 3000 / len([*permutations(range(size))])
    square = sum((count - each) ** 2 / each for count in counts.values())
    degrees = len([*permutations(range(size))]) - 1
    assert len(counts) == degrees + 1
    assert square < degrees + 5 * (2 * degrees) ** 0.5


def test_every_window_is_as_often_at_every_place_and_beside_every_other() -> None:
    size = 50
    epochs = Epochs((0, (size + 1) * CONTEXT), CONTEXT, seed=1, number=0)
    orders = epochs.starts(np.arange(2000 * size)).reshape(-1, size)
    firsts, orders = np.divmod(orders, CONTEXT)[1][:, 0], orders // CONTEXT
    for one, other in ((np.arange(size), orders), (orders[:, :-1], orders[:, 1:])):
        distinct = size * size if one.ndim == 1 else size * (size - 1)  # none is beside itself
        counts = np.bincount((size * one + other).flatten(), minlength=size * size)
        each = counts.sum() / distinct
        square = ((counts[counts > 0] - each) ** 2 / each).sum()
        assert (counts > 0).sum() == distinct
        assert abs(square - distinct) < 5 * (2 * distinct) ** 0.5
    assert np.bincount(firsts, minlength=CONTEXT).min() > 200  # borders move: each of eight offsets about 250 times


@pytest.mark.parametrize("batch", [1, 3, 40])
@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("length", [9, 24, 131, 700])
def test_workers_who_share_a_text_draw_each_window_once_an_epoch(length: int, workers: int, batch: int) -> None:
    draws = drawing(length, workers, batch, "iid")
    steps = max(2, -(-5 * draws.size // (workers * batch)))
    once(starts(draws, workers, steps).flatten(), (0, length), draws.size)


@pytest.mark.parametrize("batch", [1, 3, 40])
@pytest.mark.parametrize("workers", [2, 5])
@pytest.mark.parametrize("length", [131, 700])
def test_workers_with_a_piece_each_draw_each_of_its_windows_once_an_epoch(
    length: int, workers: int, batch: int
) -> None:
    draws, own = drawing(length, workers, batch, "contiguous"), pieces("contiguous", length, workers)
    sizes = [max(1, (stop - start - CONTEXT) // CONTEXT) for start, stop in own]
    assert draws.size == sum(sizes)
    drawn = starts(draws, workers, max(2, -(-5 * max(sizes) // batch)))
    for worker, (piece, size) in enumerate(zip(own, sizes, strict=True)):
        once(drawn[..., worker].flatten(), piece, size)


def once(drawn: np.ndarray, piece: tuple[int, int], size: int) -> None:
    """Windows in the order in which they are drawn: each whole epoch is the piece, cut at other borders than before."""
    whole = len(drawn) // size
    orders = drawn[: whole * size].reshape(whole, size)
    firsts = orders.min(1)
    assert np.array_equal(np.sort(orders), firsts[:, None] + CONTEXT * np.arange(size))
    assert firsts.min() >= piece[0]
    assert orders.max() + CONTEXT < piece[1]
    assert piece[1] - piece[0] - 1 - size * CONTEXT < 2 * CONTEXT - 1  # targets left out
    if whole > 9 and piece[1] - piece[0] > 2 * CONTEXT:
        assert len({*firsts.tolist()}) > 1
    if whole > 1 and size > 9:
        assert not np.array_equal(*(orders[:2] - firsts[:2, None]))
    rest = drawn[whole * size :]
    assert len({*rest.tolist()}) == len(rest)  # an epoch that has begun in the middle of a batch


def test_a_text_of_ten_to_the_twelve_tokens_takes_little_memory() -> None:
    epochs = Epochs((7, 10**12), context=1024, seed=0, number=0)
    (first, turns), border = _epoch(epochs._key, 3, epochs.size, epochs._room), 4 * epochs.size
    assert sum(turn.nbytes for turn in turns) < 5e6
    drawn = epochs.starts(np.arange(border - 5000, border + 5000))
    for part in drawn[:5000], drawn[5000:]:
        assert len(np.unique(part)) == 5000
        assert len({*(part % 1024).tolist()}) == 1
        assert part.min() >= 7
        assert part.max() + 1024 < 10**12
        assert part.std() == pytest.approx(10**12 / 12**0.5, rel=0.05)
    assert (drawn[0] - 7 - first) % 1024 == 0


SHARES = [[0.7, 0.3], [1.0, 1.0], [1e-3, 1.0], [1.0, 1e-3], [5.0, 3.0, 2.0], [1.0, 2.0, 3.0, 4.0]]


@pytest.mark.parametrize("weights", SHARES)
def test_texts_have_their_shares_of_the_draws_of_every_worker(weights: list[float]) -> None:
    uniform, shares = np.random.default_rng(0), np.array(weights) / sum(weights)
    phases = uniform.random((4000, len(weights)))
    for worker in range(20):
        which, numbers = dealt(np.arange(5000), weights, phases[worker].tolist())
        taken = np.cumsum(which[:, None] == np.arange(len(weights)), axis=0)
        assert np.array_equal(numbers, taken[np.arange(5000), which] - 1)
        assert np.abs(taken - shares * np.arange(1, 5001)[:, None]).max() <= len(weights)
        later, same = dealt(np.arange(4000, 4100), weights, phases[worker].tolist())
        assert np.array_equal((later, same), (which[4000:4100], numbers[4000:4100]))
    for draw in (0, 1, 1234):
        drawn = [int(dealt(np.array([draw]), weights, own)[0][0]) for own in phases.tolist()]
        counts = np.bincount(drawn, minlength=len(weights))
        assert np.abs(counts - 4000 * shares).max() < 5 * (4000 * shares * (1 - shares)).max() ** 0.5


@pytest.mark.parametrize("partition", ["iid", "contiguous"])
@pytest.mark.parametrize("weights", SHARES[:2] + SHARES[4:])
def test_each_text_of_a_mixture_has_its_own_epochs(weights: list[float], partition: str) -> None:
    lengths, workers, steps = [131, 700, 90, 400][: len(weights)], 3, 400
    texts = [1000 * text + torch.arange(length) for text, length in enumerate(lengths)]
    own = [pieces(partition, length, workers) for length in lengths]
    draws = Draws(texts, weights, own, 5, CONTEXT, 3, "epoch")
    drawn = starts(draws, workers, steps).reshape(-1, workers)
    for text, parts in enumerate(own):
        columns = [column[column // 1000 == text] - 1000 * text for column in drawn.T]
        if partition == "iid":  # they take turns
            least = min(map(len, columns))
            assert max(map(len, columns)) - least <= len(weights)
            columns = [np.stack([column[:least] for column in columns], axis=1).flatten()]
        for column, (start, stop) in zip(columns, parts, strict=False):
            once(column, (start, stop), max(1, (stop - start - CONTEXT) // CONTEXT))


def test_a_mixture_of_random_windows_is_pure_and_reaches_the_ends_of_its_texts() -> None:
    lengths, weights = [60, 100], [3.0, 1.0]
    texts = [1000 * text + torch.arange(length) for text, length in enumerate(lengths)]
    made = [Draws(texts, weights, [[(0, n)] * 4 for n in lengths], 5, CONTEXT, 4, "random") for _ in range(2)]
    drawn = starts(made[0], 4, 200)
    for step in (199, 3, 77):
        assert np.array_equal(made[1].at(step, [2, 0])[..., 0].numpy().T, drawn[step][:, [2, 0]])
    for text, length in enumerate(lengths):
        found = drawn[drawn // 1000 == text] - 1000 * text
        assert (found.min(), found.max()) == (0, length - CONTEXT - 1)
    assert (drawn < 1000).mean() == pytest.approx(0.75, abs=0.005)


@pytest.mark.parametrize("order", ["random", "epoch"])
def test_texts_of_a_mixture_are_not_drawn_from_alike(order: str) -> None:
    texts = [1000 * text + torch.arange(500) for text in range(2)]
    draws = Draws(texts, [1.0, 1.0], [[(0, 500)]] * 2, 5, CONTEXT, 4, order)
    drawn = starts(draws, 1, WINDOW).flatten()
    one, other = (drawn[drawn // 1000 == text] - 1000 * text for text in range(2))
    assert len(one) == len(other) == 2 * WINDOW
    assert (one == other).mean() < 0.2


@pytest.mark.parametrize("order", ["random", "epoch"])
def test_draws_go_to_another_process(order: str) -> None:
    own = [pieces("iid", 90, 3)]
    draws = Draws([torch.arange(90)], [1.0], own, 0, CONTEXT, 4, order)
    assert torch.equal(pickle.loads(pickle.dumps(draws)).at(40, [1, 2]), draws.at(40, [1, 2]))


def test_the_table_of_an_epoch_is_made_once_for_all_who_share_it() -> None:
    workers, batch = 50, 4
    _epoch.cache_clear()
    draws = drawing(700, workers, batch, "iid")
    for step in range(WINDOW):
        draws.at(step, range(workers))
    epochs = -(-WINDOW * workers * batch // draws.size)
    assert _epoch.cache_info().misses == epochs < 64


@pytest.mark.parametrize("partition", ["iid", "contiguous"])
def test_workers_pieces_and_seeds_are_not_drawn_alike(partition: str) -> None:
    """Neither which text comes when, nor the order of the windows of a text."""
    texts, own = [torch.arange(720), 1000 + torch.arange(720)], [pieces(partition, 720, 2)] * 2
    made = [Draws(texts, [1.0, 2**0.5], own, seed, CONTEXT, 4, "epoch") for seed in (0, 1)]
    one, other = (starts(draws, 2, WINDOW) for draws in made)
    for a, b in ((one[..., 0], one[..., 1]), (one[..., 0], other[..., 0])):
        assert not np.array_equal(a < 1000, b < 1000)
        for text in range(2):
            first, second = (c[c // 1000 == text].reshape(-1)[:15] % 1000 % 360 for c in (a, b))
            assert (first // CONTEXT == second // CONTEXT).mean() < 0.4
