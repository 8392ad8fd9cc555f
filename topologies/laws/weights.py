"""Laws on the matrix of each step: what it says of itself is what its weights say."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from commeff.topologies.laws.samples import TopologyCase, require
from commeff.topologies.matrix import MixingMatrix

LOOKED_AT = 64  # steps of a period; 6, where there is none


def describes_its_weights(case: TopologyCase) -> None:
    """Sums, symmetry, degrees and the views by receiver and sender are those of the dense matrix."""
    for step, matrix, dense in _matrices(case):
        off = dense - np.diag(np.diag(dense))
        rows, columns = (bool(np.allclose(dense.sum(axis), 1, rtol=0, atol=1e-12)) for axis in (1, 0))
        workers = range(matrix.n)
        received = [{int(j): float(dense[i, j]) for j in np.flatnonzero(dense[i])} for i in workers]
        weights = [{int(i): float(dense[i, j]) for i in np.flatnonzero(dense[:, j])} for j in workers]
        pairs: dict[str, tuple[object, object]] = {
            "row_stochastic": (matrix.row_stochastic, rows),
            "column_stochastic": (matrix.column_stochastic, columns),
            "doubly_stochastic": (matrix.doubly_stochastic, rows and columns),
            "symmetric": (matrix.symmetric, bool(np.allclose(dense, dense.T, rtol=0, atol=1e-12))),
            "sparse()": (matrix.sparse().toarray().tolist(), dense.tolist()),
            "off_diagonal": (matrix.off_diagonal.toarray().tolist(), off.tolist()),
            "messages in off_diagonal": (matrix.off_diagonal.nnz, np.count_nonzero(off)),
            "out_degrees": (matrix.out_degrees.tolist(), np.count_nonzero(off, axis=0).tolist()),
            "in_degrees": (matrix.in_degrees.tolist(), np.count_nonzero(off, axis=1).tolist()),
            "degree": (matrix.degree, int(np.count_nonzero(off, axis=0).max())),
            "received": ([matrix.received(i) for i in workers], received),
            "sent": ([matrix.sent(j) for j in workers], weights),
            "rows": (list(matrix.rows), [(tuple(row), tuple(row.values())) for row in received]),
            "columns": (list(matrix.columns), [(tuple(column), tuple(column.values())) for column in weights]),
        }
        for name, (claimed, true) in pairs.items():
            require(
                claimed == true,
                f"{case.name}: in step {step} {name} is {claimed}, but the weights say {true}: leave it to "
                "MixingMatrix",
            )


def has_the_norm_for_rho(case: TopologyCase) -> None:
    """rho = |W - J|, which bounds what a round leaves of a disagreement; lambda_min is the smallest eigenvalue."""
    for step, matrix, dense in _matrices(case):
        rho = float(np.linalg.norm(dense - 1 / matrix.n, 2))
        require(
            abs(matrix.rho - rho) <= 1e-12 and matrix.spectral_gap == 1 - matrix.rho,
            f"{case.name}: in step {step} rho is {matrix.rho:.6g} and |W - J| = {rho:.6g}: leave it to MixingMatrix",
        )
        x = np.random.default_rng(0).standard_normal(matrix.n)
        spread = float(np.linalg.norm(dense @ x - x.mean()))
        bound = matrix.rho * float(np.linalg.norm(x - x.mean()))
        require(
            not matrix.doubly_stochastic or spread <= bound + 1e-13,
            f"{case.name}: step {step} leaves {spread:.6g} of a disagreement, more than rho allows, {bound:.6g}",
        )
        if matrix.symmetric:
            least = float(np.linalg.eigvalsh(dense)[0])
            require(
                abs(matrix.lambda_min - least) <= 1e-12,
                f"{case.name}: in step {step} lambda_min is {matrix.lambda_min:.6g}, the least eigenvalue {least:.6g}",
            )


def tells_circulants_from_others(case: TopologyCase) -> None:
    """`shifts` is given where, and only where, all workers receive from the same places relative to their own."""
    for step, matrix, dense in _matrices(case):
        turned = np.array([np.roll(row, -worker) for worker, row in enumerate(dense)])
        circulant = bool((turned == turned[0]).all())
        shifts = {int(s): float(turned[0, s]) for s in np.flatnonzero(turned[0])} if circulant else None
        require(
            matrix.shifts == shifts,
            f"{case.name}: in step {step} shifts is {matrix.shifts}, but the weights say {shifts}: leave it to "
            "MixingMatrix",
        )


def _matrices(case: TopologyCase) -> Iterator[tuple[int, MixingMatrix, NDArray[np.float64]]]:
    """The matrices of a period, or of the first steps."""
    topology = case.build()
    for step in range(min(topology.period or 6, LOOKED_AT)):
        matrix = topology.at(step)
        yield step, matrix, matrix.dense()
