"""From a graph to a mixing matrix: the weights of `from_graph`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csgraph, csr_array, diags_array, triu

from commeff.topologies.files import read_graph
from commeff.topologies.matrix import MixingMatrix, symmetric
from commeff.topologies.topology import Topology, from_matrices

if TYPE_CHECKING:
    import networkx as nx

Adjacency: TypeAlias = csr_array  # (n, n) of zeros and ones, entry [u, v]: u sends to v; no diagonal


def from_graph(
    graph: nx.Graph | str,
    weights: Literal["metropolis", "uniform", "max_degree", "fastest"] | None = None,
    directed: bool = False,
) -> Topology:
    r"""A fixed topology on any connected graph, of networkx or from a file.

    Workers are the nodes: by their own numbers if these are 0 ... n-1, else in the graph's order. Self-loops, edge
    attributes and parallel edges are ignored. With :math:`d_i` the number of neighbours excluding i itself:

    ============  =======================================================================  ====================
    weights       W                                                                        graph
    ============  =======================================================================  ====================
    metropolis    :math:`1 / (1 + \max(d_i, d_j))` on edges; the default                   undirected, symmetric
    max_degree    :math:`I - L / (1 + \max_i d_i)`, L the Laplacian                        undirected, symmetric
    fastest       the symmetric W with the smallest :math:`\rho` on these edges            undirected, symmetric
    uniform       :math:`1 / (1 + d_i)` on all that i receives: rows sum to 1              undirected
    uniform       :math:`1 / (1 + d_j)` on all that j sends: columns sum to 1; default     directed (push-sum)
    ============  =======================================================================  ====================

    In a directed graph the edge u -> v means that u sends to v. A file is GraphML, if it ends in .graphml, or an edge
    list: a line "i j" for each edge, where a third word (a weight) and what follows a # are not read. A run's name
    knows the file by its path: give a graph that has changed another name.

    When: a network that there is, or a graph from another program.

    Parameters
    ----------
    graph : networkx.Graph or DiGraph, or str
        Workers are its nodes; an edge (i, j) of a directed graph lets i send to j. Or the path of a file.
    weights : str, optional
        The row of the table; None, the default, is metropolis for undirected graphs and uniform for directed ones.
    directed : bool
        Whether i sends to j and not j to i, in an edge list. Other graphs say so themselves.

    Raises
    ------
    ValueError
        If the graph is empty, not (strongly) connected, or if the weights do not exist for its kind.

    References
    ----------
    Fastest weights: Xiao and Boyd, Fast linear iterations for distributed averaging, 2004.

    Examples
    --------
    >>> import networkx as nx
    >>> path = nx.path_graph(4)
    >>> [round(from_graph(path, rule).at(0).rho, 4) for rule in ("metropolis", "max_degree", "fastest")]
    [0.8047, 0.8047, 0.7071]
    >>> from_graph(nx.DiGraph([(0, 1), (1, 2), (2, 0)])).at(0).received(2)          # 1 sends to 2
    {1: 0.5, 2: 0.5}
    """
    if isinstance(graph, str):
        graph = read_graph(graph, directed)
    kind, rules = ("directed", DIRECTED) if graph.is_directed() else ("undirected", UNDIRECTED)
    rule = rules.get(next(iter(rules)) if weights is None else weights)
    if rule is None:
        raise ValueError(f"from_graph: weights of {kind} graphs must be one of {', '.join(rules)}, got {weights!r}")
    adjacency = _adjacency(graph)
    pieces, _ = csgraph.connected_components(adjacency, connection="strong")
    if pieces != 1:
        raise ValueError(
            f"from_graph: the graph must be connected, got {pieces} components: they would never agree; connect them"
        )
    return from_matrices([rule(adjacency)])


def _adjacency(graph: nx.Graph) -> Adjacency:
    n = graph.number_of_nodes()
    if n == 0:
        raise ValueError("from_graph: the graph must have a node for every worker, got none")
    numbered = set(graph) == set(range(n))
    from networkx import to_scipy_sparse_array  # late: a quarter of a second

    edges = to_scipy_sparse_array(graph, nodelist=range(n) if numbered else None, weight=None, format="csr")
    edges.setdiag(0)
    edges.eliminate_zeros()
    edges.data = np.ones(edges.nnz)
    return edges


def _edges(adjacency: Adjacency) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Ends i < j of each undirected edge, and the workers' degrees."""
    upper = triu(adjacency).tocoo()
    return upper.row, upper.col, np.diff(adjacency.indptr)


def _metropolis(adjacency: Adjacency) -> MixingMatrix:
    first, second, degrees = _edges(adjacency)
    return symmetric(len(degrees), first, second, 1 / (1 + np.maximum(degrees[first], degrees[second])))


def _max_degree(adjacency: Adjacency) -> MixingMatrix:
    first, second, degrees = _edges(adjacency)
    return symmetric(len(degrees), first, second, 1 / (1 + degrees.max()))


def _uniform(adjacency: Adjacency) -> MixingMatrix:
    degrees = np.diff(adjacency.indptr)
    return MixingMatrix(diags_array(1 / (1 + degrees)) @ (adjacency + diags_array(np.ones(len(degrees)))))


def _uniform_sent(adjacency: Adjacency) -> MixingMatrix:
    return MixingMatrix(_uniform(adjacency).sparse().T)


def _fastest(adjacency: Adjacency) -> MixingMatrix:
    r"""Edge weights w that minimise :math:`\rho = \lVert M \rVert_2`, :math:`M = I - J - B\,\mathrm{diag}(w) B^\top`.

    B is the incidence matrix. As a semidefinite program: the smallest t with :math:`tI \pm M \succ 0`. The barrier
    :math:`t/\mu - \log\det(tI - M) - \log\det(tI + M)` is self-concordant, so Newton steps of length
    1/(1 + decrement) stay inside and need no line search; its minimiser is within :math:`2n\mu` of the optimum, which
    is the `accuracy` below. A Newton step costs O(edges^3).
    """
    first, second, degrees = _edges(adjacency)
    n, edges = len(degrees), np.arange(len(first))
    incidence = np.zeros((n, len(edges)))
    incidence[first, edges], incidence[second, edges] = 1, -1
    identity, centred = np.eye(n), np.eye(n) - 1 / n

    point = np.append(1 / (1 + np.maximum(degrees[first], degrees[second])), 1.0)  # Metropolis weights, and t = 1 > rho
    best, accuracy = point, 1.0
    while accuracy > 1e-10:
        accuracy /= 8
        decrement, squared_before = np.inf, np.inf
        while decrement > 0.1:
            deviation = centred - incidence * point[:-1] @ incidence.T
            try:
                above, below = (_inverse(point[-1] * identity + sign * deviation) for sign in (-1, 1))
                best = min(best, point, key=itemgetter(-1))  # rho < t at every point inside
                projections = [incidence.T @ inverse @ incidence for inverse in (above, below)]
                squared = [np.square(inverse @ incidence).sum(axis=0) for inverse in (above, below)]
                gradient = np.append(
                    projections[1].diagonal() - projections[0].diagonal(), 2 * n / accuracy - np.trace(above + below)
                )
                cross = squared[0] - squared[1]
                corner = np.square(above).sum() + np.square(below).sum()
                hessian = np.block(
                    [[np.square(projections[0]) + np.square(projections[1]), cross[:, None]], [cross[None, :], corner]]
                )
                newton = np.linalg.solve(hessian, gradient)
            except np.linalg.LinAlgError:  # by rounding, the last step led outside, or the next is unknown
                return symmetric(n, first, second, best[:-1])
            square = float(gradient @ newton)
            if not 0 <= square < squared_before:  # what is left is below the rounding error of the inverses
                return symmetric(n, first, second, best[:-1])
            decrement, squared_before = float(np.sqrt(square)), square
            point = point - newton / (1 + decrement)
    return symmetric(n, first, second, best[:-1])


def _inverse(matrix: NDArray[Any]) -> NDArray[Any]:
    """That of a positive definite matrix; any other is a LinAlgError."""
    np.linalg.cholesky(matrix)
    return np.linalg.inv(matrix)


Rules = Mapping[str, Callable[[Adjacency], MixingMatrix]]
UNDIRECTED: Rules = MappingProxyType(
    {"metropolis": _metropolis, "uniform": _uniform, "max_degree": _max_degree, "fastest": _fastest}
)
DIRECTED: Rules = MappingProxyType({"uniform": _uniform_sent})
