"""Graphs and mixing matrices from files. Only regular files of bounded size are read, and no message quotes them."""

from __future__ import annotations

import os
import stat
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import networkx as nx

LARGEST = 1 << 28  # bytes of a file


def read_graph(path: str, directed: bool = False) -> nx.Graph:
    """A graph from GraphML, if the name ends in .graphml, else from an edge list.

    Nodes that are called by decimal numbers become these numbers.
    """
    graph = _graphml(path) if Path(path).suffix == ".graphml" else _edges(path, directed)
    numbers = {node: int(node) for node in graph if str(node).isdecimal()}
    if len(numbers) == graph.number_of_nodes():
        from networkx import relabel_nodes

        graph = relabel_nodes(graph, numbers)
    return graph


def read_matrices(path: str) -> list[NDArray[np.float64]]:
    """One matrix (n, n) or several (period, n, n) from a file of numpy's, .npy."""
    must = f"from_matrices: {path} must be a .npy file of numbers, got another or none"
    try:
        array = np.load(BytesIO(_read(path)), allow_pickle=False)
    except OSError as error:
        raise ValueError(f"{must}: {error.strerror}") from None
    except Exception:  # a damaged file can raise anything at all
        raise ValueError(must) from None
    if not isinstance(array, np.ndarray) or array.ndim not in (2, 3) or array.dtype.kind not in "fiu":
        got = f"shape {array.shape} of {array.dtype.name}" if isinstance(array, np.ndarray) else "an archive"
        raise ValueError(f"from_matrices: {path} must hold (n, n) or (period, n, n) numbers, got {got}")
    return [*array] if array.ndim == 3 else [array]


def _read(path: str) -> bytes:
    """Read a regular file; a pipe or a device is not waited for."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(0, "it is no regular file")
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise OSError(0, f"it is larger than {LARGEST >> 20} MiB")
    return content


def _text(path: str) -> str:
    try:
        return _read(path).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ValueError(f"from_graph: {path} must be a text file, got another or none: {reason}") from None


def _edges(path: str, directed: bool) -> nx.Graph:
    from networkx import DiGraph, Graph  # late: a quarter of a second

    graph = DiGraph() if directed else Graph()
    for number, line in enumerate(_text(path).splitlines(), 1):
        words = line.partition("#")[0].replace(",", " ").split()
        if len(words) == 1 or len(words) > 3:
            raise ValueError(f"from_graph: line {number} of {path} must be two nodes, got {len(words)} words")
        if words:
            graph.add_edge(*words[:2])
    return graph


def _graphml(path: str) -> nx.Graph:
    from xml.etree.ElementTree import ParseError

    from networkx import parse_graphml

    text = _text(path)
    try:
        return parse_graphml(text)
    except Exception as error:  # likewise
        where = f" in line {error.position[0]}" if isinstance(error, ParseError) else ""
        raise ValueError(f"from_graph: {path} must be GraphML, got something else{where}") from None
