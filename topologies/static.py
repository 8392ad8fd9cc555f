"""Graphs that stay: one mixing matrix for all steps.

Undirected ones carry Metropolis weights, :math:`W_{ij} = 1 / (1 + max(d_i, d_j))`, where :math:`d_i` counts the
neighbours of i. On regular graphs that is the usual uniform weight 1 / (1 + d) (ring 1/3, torus 1/5, hypercube
1/(m+1)); on a star it is I - L/n, with L the Laplacian.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from commeff.topologies.matrix import circulant
from commeff.topologies.topology import Topology, fraction, from_matrices, integer
from commeff.topologies.weights import from_graph

if TYPE_CHECKING:  # functions import it themselves: it takes a quarter of a second
    import networkx as nx

ATTEMPTS = 100  # draws of a random graph before it is said to be never connected


def complete(n: int) -> Topology:
    """Everyone receives from everyone: W = J, exact averaging in one step, n - 1 messages a worker. rho = 0.

    When: exact averaging as a topology: the reference that others are held against.

    Parameters
    ----------
    n : int
        Workers, from 1.

    Examples
    --------
    >>> complete(4).at(0).degree
    3
    """
    n = integer("complete: n", n, 1)
    return from_matrices([np.full((n, n), 1 / n)])


def ring(n: int) -> Topology:
    r"""Two neighbours, weights 1/3. Eigenvalues :math:`\tfrac13 + \tfrac23\cos(2\pi k/n)`.

    So :math:`1 - \rho \sim 4\pi^2/(3n^2)`. In a ring of two both neighbours are the same worker, which counts once: the
    pair averages with weights 1/2. Even rings from 4 on have the eigenvalue -1/3, which D2 cannot bear: use
    ``lazy(ring(n))``.

    When: the fewest messages on a fixed, symmetric graph; small n, for consensus slows down as n squared.

    Parameters
    ----------
    n : int
        Workers, from 1.

    Examples
    --------
    >>> list(ring(5).at(0).received(0))
    [0, 1, 4]
    """
    import networkx as nx

    return from_graph(nx.cycle_graph(integer("ring: n", n, 1)))


def torus(rows: int, cols: int) -> Topology:
    r"""A grid whose opposite edges are joined: four neighbours, weights 1/5.

    Worker ``r * cols + c`` sits in row r, column c. Square m x m, m >= 3: :math:`\rho = (3 + 2\cos(2\pi/m))/5`. Along a
    side of two both neighbours are the same worker, which counts once (weights 1/4, or 1/3 for 2 x 2).

    When: a fixed symmetric graph of degree 4 for tens of workers.

    Parameters
    ----------
    rows, cols : int
        Sides of the rectangle, each from 2; rows * cols workers.

    Examples
    --------
    >>> round(torus(4, 4).at(0).rho, 12)
    0.6
    """
    if min(integer("torus: rows", rows, 1), integer("torus: cols", cols, 1)) < 2:
        raise ValueError(
            f"torus: rows and cols must be at least 2, got {rows} x {cols}: such a rectangle is a ring; use "
            f"ring({rows * cols})"
        )
    import networkx as nx

    return from_graph(nx.grid_2d_graph(rows, cols, periodic=True))


def grid(rows: int, cols: int) -> Topology:
    """An open grid, four neighbours or fewer, Metropolis weights. 1 - rho = O(1/(n log n)).

    Worker ``r * cols + c`` sits in row r, column c. ``grid(1, n)`` is the path.

    When: workers that lie in a plane, without links around its edges.

    Parameters
    ----------
    rows, cols : int
        Sides of the rectangle, each from 1; rows * cols workers.

    Examples
    --------
    >>> grid(2, 3).at(0).received(1)
    {0: 0.25, 1: 0.25, 2: 0.25, 4: 0.25}
    """
    import networkx as nx

    return from_graph(nx.grid_2d_graph(integer("grid: rows", rows, 1), integer("grid: cols", cols, 1)))


def star(n: int) -> Topology:
    """Everyone talks to worker 0 only: W = I - L/n. rho = 1 - 1/n, however short the paths are.

    When: what a server that is one of the workers does; its link carries all.

    Parameters
    ----------
    n : int
        Workers, from 1; worker 0 is the centre.

    Examples
    --------
    >>> star(4).at(0).out_degrees
    array([3, 1, 1, 1])
    """
    import networkx as nx

    return from_graph(nx.star_graph(integer("star: n", n, 1) - 1))


def hypercube(n: int) -> Topology:
    r"""Workers whose numbers differ in one bit are neighbours, weights 1/(m+1), n = 2^m. :math:`\rho = 1 - 2/(m+1)`.

    When: fast consensus on a fixed symmetric graph of log2 n neighbours.

    Parameters
    ----------
    n : int
        Workers, a power of two.

    Examples
    --------
    >>> hypercube(8).at(0).received(5)
    {1: 0.25, 4: 0.25, 5: 0.25, 7: 0.25}
    """
    if integer("hypercube: n", n, 1).bit_count() != 1:
        raise ValueError(f"hypercube: n must be a power of two, got {n}; use base_graph({n}, k) or exponential({n})")
    import networkx as nx

    cube = nx.empty_graph(n)
    cube.add_edges_from((i, i ^ 1 << bit) for bit in range(n.bit_length() - 1) for i in range(n))
    return from_graph(cube)


def exponential(n: int) -> Topology:
    r"""The static exponential graph: i receives from i + 1, i + 2, i + 4, ... (mod n), weights 1/(m+1).

    m = ceil(log2 n). Directed and circulant: doubly stochastic though not symmetric. :math:`\rho = 1 - 2/(m+1)` for
    even n, less for odd n. Ying et al., Exponential graph is provably efficient for decentralized deep training, arXiv
    2110.13363.

    When: the fixed graph to try first: fast consensus at log2 n messages. It is not symmetric, which `d2` refuses.

    Parameters
    ----------
    n : int
        Workers, from 1.

    Examples
    --------
    >>> exponential(6).at(0).received(4)                    # from 4 + 1 and, around the end, from 4 + 2 and 4 + 4
    {0: 0.25, 2: 0.25, 4: 0.25, 5: 0.25}
    """
    hops = (integer("exponential: n", n, 1) - 1).bit_length()
    return from_matrices([circulant(n, dict.fromkeys([0, *(1 << t for t in range(hops))], 1 / (hops + 1)))])


def symmetric_exponential(n: int) -> Topology:
    r"""The symmetric exponential graph: i hears i + 1, i - 1, i + 2, i - 2, i + 4, ... (mod n), equal weights.

    Offsets that coincide mod n count once. Circulant and symmetric; of degree 2m - 1 for n = 2^m, where :math:`\rho = 1
    - 2/m` from m = 2 on: no better than `exponential`, which sends about half as much. `lazy` makes its eigenvalues
    positive.

    When: as `exponential`, for methods that need symmetric weights (`d2`, `exact_diffusion`).

    Parameters
    ----------
    n : int
        Workers, from 1.

    Examples
    --------
    >>> graph = symmetric_exponential(16).at(0)
    >>> graph.degree, graph.symmetric, round(graph.rho, 12)
    (7, True, 0.5)
    """
    hops = [1 << t for t in range((integer("symmetric_exponential: n", n, 1) - 1).bit_length())]
    offsets = {0, *(hop % n for hop in hops), *(-hop % n for hop in hops)}
    return from_matrices([circulant(n, dict.fromkeys(sorted(offsets), 1 / len(offsets)))])


def erdos_renyi(n: int, p: float, seed: int) -> Topology:
    """Each pair is joined with probability p; Metropolis weights. Drawn once, then fixed.

    Draws that are not connected are passed over: it is the random graph given that it is connected.

    When: experiments on irregular graphs.

    Parameters
    ----------
    n : int
        Workers, from 1.
    p : float
        Probability of each edge, in (0, 1]; graphs are connected from about ln(n)/n on.
    seed : int
        The seed of the random draws, from 0; equal on every worker.

    Examples
    --------
    >>> erdos_renyi(10, 0.5, seed=0).at(0).symmetric
    True
    """
    import networkx as nx

    n, p = integer("erdos_renyi: n", n, 1), fraction("erdos_renyi: p", p)
    return from_graph(_connected(partial(nx.fast_gnp_random_graph, n, p), seed, f"erdos_renyi({n}, {p})", "raise p"))


def random_regular(n: int, degree: int, seed: int) -> Topology:
    """A random connected graph where everyone has `degree` neighbours, weights 1/(degree + 1). Drawn once, then fixed.

    When: a fixed symmetric graph of any degree with consensus that hardly depends on n.

    Parameters
    ----------
    n : int
        Workers.
    degree : int
        Neighbours of each worker, below n; n * degree is even.
    seed : int
        The seed of the random draws, from 0; equal on every worker.

    Examples
    --------
    >>> random_regular(10, degree=3, seed=0).at(0).out_degrees
    array([3, 3, 3, 3, 3, 3, 3, 3, 3, 3])
    """
    n, degree = integer("random_regular: n", n, 1), integer("random_regular: degree", degree, 0)
    if degree >= n or n * degree % 2:
        raise ValueError(f"random_regular: degree must be below n = {n} and n * degree even, got degree = {degree}")
    import networkx as nx

    draw = partial(nx.random_regular_graph, degree, n)
    return from_graph(_connected(draw, seed, f"random_regular({n}, {degree})", "raise the degree"))


def _connected(draw: Callable[[int], nx.Graph], seed: int, constructor: str, remedy: str) -> nx.Graph:
    """The first connected graph among the draws with this seed."""
    import networkx as nx

    integer(f"{constructor}: seed", seed, 0)
    for attempt in range(ATTEMPTS):
        graph = draw(int(np.random.default_rng([seed, attempt]).integers(1 << 32)))
        if nx.is_connected(graph):
            return graph
    raise ValueError(f"{constructor}: the graph must be connected, got none among {ATTEMPTS} draws; {remedy}")
