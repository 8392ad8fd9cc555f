"""Mixing matrices: the weights of one round of gossip, kept sparse, with the numbers theory asks of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array, csr_array, diags_array

DENSE_LIMIT = 1024  # up to this many workers spectra come from dense LAPACK; above, from Lanczos
LANCZOS = 64  # Lanczos vectors kept between restarts
TOLERANCE = 1e-9  # how far a sum of weights may be from 1


@dataclass(frozen=True, eq=False, repr=False)
class MixingMatrix:
    r"""One round of gossip: :math:`x_i \leftarrow \sum_j W_{ij} x_j`, where ``W[i, j]`` weighs what i RECEIVES from j.

    Immutable; equality and hash are those of the object, so it can key a cache. Everything derived is computed once.

    Parameters
    ----------
    weights : array or scipy sparse, (n, n)
        Finite; the rows sum to 1 (averaging), the columns do (push-sum), or both (the mean of the workers never moves).

    Raises
    ------
    ValueError
        If the weights are not a square matrix, not finite, or if neither rows nor columns sum to 1.

    Examples
    --------
    >>> W = MixingMatrix([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.5, 0.0, 0.5]])
    >>> W.received(0)
    {0: 0.5, 1: 0.5}
    >>> W.out_degrees, W.doubly_stochastic, W.symmetric
    (array([1, 1, 1]), True, False)
    >>> round(W.rho, 12)
    0.5
    """

    _csr: csr_array

    def __post_init__(self) -> None:
        weights = csr_array(self._csr, dtype=np.float64, copy=True)
        if weights.ndim != 2 or weights.shape[0] != weights.shape[1] or weights.shape[0] == 0:
            raise ValueError(f"mixing weights must be square, (workers, workers), got shape {weights.shape}")
        if not np.isfinite(weights.data).all():
            raise ValueError("mixing weights must be finite, got NaN or infinity")
        weights.sum_duplicates()
        weights.eliminate_zeros()
        object.__setattr__(self, "_csr", weights)
        if not (self.row_stochastic or self.column_stochastic):
            raise ValueError(
                "rows or columns of the mixing weights must sum to 1, got neither: mixing would shrink or grow what is "
                "mixed; divide each row by its sum"
            )

    def __repr__(self) -> str:
        return f"MixingMatrix(n={self.n}, degree={self.degree})"

    @property
    def n(self) -> int:
        """Number of workers."""
        return int(self._csr.shape[0])

    def dense(self) -> NDArray[np.float64]:
        """W as a fresh (n, n) array."""
        return np.asarray(self._csr.toarray(), dtype=np.float64)

    def sparse(self) -> csr_array:
        """W as a fresh canonical CSR array: indices sorted, no duplicates, no stored zeros."""
        return self._csr.copy()

    def received(self, worker: int) -> dict[int, float]:
        """The weights that `worker` receives with: sender -> weight, senders in order, itself among them."""
        return dict(zip(*self.rows[self._check_worker(worker)], strict=True))

    def sent(self, worker: int) -> dict[int, float]:
        """The weights that `worker` is received with: receiver -> weight, receivers in order, itself among them."""
        return dict(zip(*self.columns[self._check_worker(worker)], strict=True))

    def _check_worker(self, worker: int) -> int:
        if not 0 <= worker < self.n:
            raise ValueError(f"worker must lie in [0, {self.n - 1}], got {worker}")
        return worker

    @cached_property
    def rows(self) -> tuple[tuple[tuple[int, ...], tuple[float, ...]], ...]:
        """For each receiver its (senders, weights): plain numbers for mixing kernels."""
        return _entries(self._csr)

    @cached_property
    def columns(self) -> tuple[tuple[tuple[int, ...], tuple[float, ...]], ...]:
        """For each sender its (receivers, weights): whom a process must send to."""
        return _entries(csr_array(self._csr.T))

    # Who talks to whom -------------------------------------------------------------------------------------------

    @cached_property
    def off_diagonal(self) -> csr_array:
        """W without the workers' own weights: one stored entry for every message of the round. Read only."""
        messages = csr_array(self._csr - diags_array(self._csr.diagonal()))
        messages.eliminate_zeros()
        return messages

    @cached_property
    def out_degrees(self) -> NDArray[np.int64]:
        """(n,) how many other workers receive each worker's message."""
        return np.bincount(self.off_diagonal.indices, minlength=self.n)

    @cached_property
    def in_degrees(self) -> NDArray[np.int64]:
        """(n,) how many other workers each worker receives from."""
        return np.asarray(np.diff(self.off_diagonal.indptr), dtype=np.int64)

    @property
    def degree(self) -> int:
        """Messages sent by the busiest worker."""
        return int(self.out_degrees.max())

    # Sums and symmetry -------------------------------------------------------------------------------------------

    @cached_property
    def row_stochastic(self) -> bool:
        """Do all rows sum to 1 (agreement is kept)? Weights may be negative ("fastest" weights of a graph can be)."""
        return bool(np.abs(self._csr.sum(axis=1) - 1).max() <= TOLERANCE)

    @cached_property
    def column_stochastic(self) -> bool:
        """Do all columns sum to 1 (the sum over workers is kept)?"""
        return bool(np.abs(self._csr.sum(axis=0) - 1).max() <= TOLERANCE)

    @property
    def doubly_stochastic(self) -> bool:
        """Do all rows and all columns sum to 1?"""
        return self.row_stochastic and self.column_stochastic

    @cached_property
    def symmetric(self) -> bool:
        """Is W equal to its transpose?"""
        return bool(abs(self._csr - self._csr.T).max() <= TOLERANCE)

    @cached_property
    def shifts(self) -> dict[int, float] | None:
        """{s: W[i, i + s mod n]} when that is the same for every i (a circulant matrix), else None.

        >>> circulant(5, {0: 0.25, 1: 0.75}).shifts
        {0: 0.25, 1: 0.75}
        """
        counts = np.diff(self._csr.indptr)
        if (counts != counts[0]).any():
            return None
        ahead = (self._csr.indices.reshape(self.n, -1) - np.arange(self.n)[:, None]) % self.n
        order = ahead.argsort(axis=1)
        ahead = np.take_along_axis(ahead, order, axis=1)
        weights = np.take_along_axis(self._csr.data.reshape(self.n, -1), order, axis=1)
        if (ahead != ahead[0]).any() or (weights != weights[0]).any():
            return None
        return dict(zip(ahead[0].tolist(), weights[0].tolist(), strict=True))

    # Spectrum ----------------------------------------------------------------------------------------------------

    @cached_property
    def rho(self) -> float:
        r""":math:`\lVert W - J \rVert_2`, the worst factor by which one round shrinks disagreement.

        By FFT for circulant matrices, by dense singular values up to `DENSE_LIMIT` workers, above by Lanczos from a
        fixed start: exact up to rounding, and the same in every process.
        """
        if self.shifts is not None:
            return float(np.abs(self._circulant_spectrum(self.shifts, deflate=1)).max())
        if self.n <= DENSE_LIMIT:
            return float(np.linalg.norm(self.dense() - 1 / self.n, 2))
        from scipy.sparse.linalg import LinearOperator, svds  # late, as few have so many workers

        deviation = LinearOperator(
            shape=self._csr.shape,
            dtype=np.float64,
            matvec=lambda x: self._csr @ x - x.mean(),
            rmatvec=lambda x: self._csr.T @ x - x.mean(),
        )
        largest = svds(deviation, k=1, ncv=LANCZOS, v0=_start(self.n), maxiter=self.n, return_singular_vectors=False)
        return float(largest[0])

    @property
    def spectral_gap(self) -> float:
        """1 - rho."""
        return 1 - self.rho

    @cached_property
    def lambda_min(self) -> float:
        """Smallest eigenvalue of a symmetric W (D2 needs it above -1/3).

        Raises
        ------
        ValueError
            If W is not symmetric: its eigenvalues are then complex.
        """
        if not self.symmetric:
            raise ValueError(
                "lambda_min requires a symmetric mixing matrix, got one that is not: its eigenvalues are complex; use "
                "an undirected graph"
            )
        if self.shifts is not None:
            return float(self._circulant_spectrum(self.shifts, deflate=0).real.min())
        if self.n <= DENSE_LIMIT:
            return float(np.linalg.eigvalsh(self.dense())[0])
        from scipy.sparse.linalg import eigsh

        start = _start(self.n)
        smallest = eigsh(self._csr, k=1, which="SA", ncv=LANCZOS, v0=start, maxiter=self.n, return_eigenvectors=False)
        return float(smallest[0])

    def _circulant_spectrum(self, shifts: Mapping[int, float], deflate: float) -> NDArray[np.complex128]:
        """Eigenvalues of the circulant W - deflate * J: the discrete Fourier transform of its first row."""
        row = np.full(self.n, -deflate / self.n)
        row[list(shifts)] += list(shifts.values())
        return np.fft.fft(row)


def _entries(csr: csr_array) -> tuple[tuple[tuple[int, ...], tuple[float, ...]], ...]:
    indices, weights = csr.indices.tolist(), csr.data.tolist()
    return tuple((tuple(indices[a:b]), tuple(weights[a:b])) for a, b in pairwise(csr.indptr.tolist()))


def _start(n: int) -> NDArray[np.float64]:
    """A start vector for Lanczos that is the same in every process."""
    return np.random.default_rng(0).standard_normal(n)


def circulant(n: int, shifts: Mapping[int, float]) -> MixingMatrix:
    """Every worker i receives from worker (i + s) mod n with weight ``shifts[s]``; shifts that coincide mod n add up.

    >>> circulant(4, {0: 0.5, 1: 0.5}).received(3)
    {0: 0.5, 3: 0.5}
    """
    receivers = np.repeat(np.arange(n), len(shifts))
    senders = (receivers + np.tile(np.array(list(shifts), dtype=np.int64), n)) % n
    return _from_entries(n, receivers, senders, np.tile(list(shifts.values()), n))


def symmetric(n: int, first: ArrayLike, second: ArrayLike, weights: ArrayLike) -> MixingMatrix:
    """Workers ``first[e]`` and ``second[e]`` give each other weight ``weights[e]``; everyone keeps the rest of its 1.

    >>> symmetric(3, [0, 1], [1, 2], 0.25).dense()
    array([[0.75, 0.25, 0.  ],
           [0.25, 0.5 , 0.25],
           [0.  , 0.25, 0.75]])
    """
    one, other = np.asarray(first, dtype=np.int64), np.asarray(second, dtype=np.int64)
    receivers, senders = np.append(one, other), np.append(other, one)
    values = np.tile(np.broadcast_to(np.asarray(weights, dtype=np.float64), one.shape), 2)
    diagonal = 1 - np.bincount(receivers, values, minlength=n)
    nodes = np.arange(n)
    return _from_entries(n, np.append(receivers, nodes), np.append(senders, nodes), np.append(values, diagonal))


def _from_entries(n: int, receivers: ArrayLike, senders: ArrayLike, weights: ArrayLike) -> MixingMatrix:
    return MixingMatrix(coo_array((weights, (receivers, senders)), shape=(n, n)))
