"""Gossip between nodes of several workers, taken apart so that each worker carries its share of the bytes."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array, diags_array, eye_array, kron

from commeff.topologies.matrix import MixingMatrix
from commeff.topologies.topology import Topology, combined, from_matrices, integer


class Rounds(NamedTuple):
    """Three rounds one after the other: the members of each node send their parts to one of them, which averages; it
    gossips with those of other nodes; it answers the members.
    """

    collect: Topology
    between: Topology
    spread: Topology


def sharded(outer: Topology, per_node: int) -> list[Rounds]:
    r"""For each member m of a node, the rounds in which it serves: together :math:`W_{outer} \otimes J`, J = 11'/q.

    If member m serves for the m-th of q equal parts of a vector, a worker sends 2 (q - 1)/q of it inside its node and
    1/q of it to each neighbouring node.

    Parameters
    ----------
    outer : Topology
        Over the nodes; worker ``node * per_node + m`` is member m of a node.
    per_node : int
        q, the workers of a node.

    Examples
    --------
    >>> from commeff.topologies import ring
    >>> rounds = sharded(ring(3), per_node=2)[1]
    >>> product = rounds.spread.at(0).dense() @ rounds.between.at(0).dense() @ rounds.collect.at(0).dense()
    >>> bool(np.allclose(product, np.kron(ring(3).at(0).dense(), np.full((2, 2), 1 / 2))))
    True
    """
    q = integer("sharded: per_node", per_node, 1)
    nodes = eye_array(outer.n)
    rounds = []
    for m in range(q):
        collect, spread = np.eye(q), np.zeros((q, q))
        collect[m], spread[:, m] = 1 / q, 1
        between = combined(partial(_among, m, q), outer)
        rounds.append(Rounds(from_matrices([kron(nodes, collect)]), between, from_matrices([kron(nodes, spread)])))
    return rounds


def _among(m: int, q: int, outer: MixingMatrix) -> MixingMatrix:
    """`outer` among the m-th members; the others keep what they have."""
    member = np.zeros(q)
    member[m] = 1
    gossip = kron(outer.sparse(), diags_array(member))
    return MixingMatrix(csr_array(gossip + kron(eye_array(outer.n), diags_array(1 - member))))
