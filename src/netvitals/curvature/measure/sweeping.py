r"""All pairs from one sweep: deflated Frobenius norms, spectral norms, couplings and gaps, with standard errors.

A probe at node $w$ gives column $w$ of every block, so $N$ nodes with $m$ probes cost $Nm$ products, not $N^2m$. The
probes of a node are spent in four parts of about the same size:

1. a *sketch* $H_{v,w}z$. Its rows at $v$ span the directions that matter there, because $H_{v,w}=H_{w,v}^\top$;
2. the orthonormal basis $Q_w$ of the sketch at $w$;
3. the leading left singular vectors of $H_{w,v}Q_v$ for the various $v$, which is one step of power iteration for every
   pair at once; they extend $Q_w$, and the largest singular value of $H_{v,w}Q_w$ estimates $\|H_{v,w}\|_2$ from below;
4. *fresh* probes orthogonal to all that: $\|H_{v,w}\|_F^2 = \|H_{v,w}Q_w\|_F^2 + E\|H_{v,w}(I-Q_wQ_w^\top)z\|^2$.

Plain probes have a relative error of $\sqrt{2/m}$ on a block of rank one; here such a block is exact. The same $Q_w$
and $z$ serve H, GN and T and every $v$, so ratios (coupling, gap, stable rank) lose most of their noise, and the stable
rank cannot fall below 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from netvitals.curvature.engine.probes import draw, generator
from netvitals.curvature.engine.products import Column, Pieces, Products, Progress
from netvitals.curvature.engine.stream import BatchStream
from netvitals.curvature.measure.leading import leading_squares

KINDS = ("H", "GN", "T")


@dataclass
class Sweep:
    """What the sweep keeps of every ordered pair, as arrays (S, N, N) indexed [v, w] where the probes sat at w.

    S is 1, or the number of examples. Columns of nodes no wider than the probes are ``exact``: their tails are zero.
    """

    exact: np.ndarray  # (N,)
    head: dict[str, np.ndarray] = field(default_factory=dict)  # per kind ‖H Q‖²
    tail: dict[str, np.ndarray] = field(default_factory=dict)  # per kind (S, N, N, k): ‖H (I-QQᵀ) z‖²
    spread: dict[str, np.ndarray] = field(default_factory=dict)  # per kind the variance of one sample of the tail
    top: np.ndarray = field(default_factory=lambda: np.zeros(0))  # largest singular value² of H Q, NaN if unknown
    nuclear: np.ndarray = field(default_factory=lambda: np.zeros(0))  # Σ of the singular values of H Q
    gain: np.ndarray = field(default_factory=lambda: np.zeros(0))  # share of ``top`` that the second basis found
    unsure: np.ndarray = field(default_factory=lambda: np.zeros(0))  # relative, of ``top``; NaN if not refined
    shares: dict[str, np.ndarray] = field(default_factory=dict)  # per kind (batches, N, N): what each adds to ‖H‖²


class _Run:
    """The state of a sweep while it runs."""

    def __init__(
        self,
        products: Products | BatchStream,
        *,
        probes: int,
        seed: int,
        by_sample: bool,
        planned: int,
        progress: Progress | None,
    ) -> None:
        self.products, self.probes, self.progress = products, probes, progress
        self.n = len(products.leaves)
        self.copies = products.tape.examples if by_sample else 1
        self.sizes = [products.size(v) // self.copies for v in range(self.n)]
        self.exact = [d <= probes for d in self.sizes]
        self.source = generator(seed, products.flat[0].device)
        shape = (self.copies, self.n, self.n)
        self.found = Sweep(
            exact=np.array(self.exact),
            head={k: np.zeros(shape) for k in KINDS},
            spread={k: np.zeros(shape) for k in KINDS},
            top=np.full(shape, np.nan),
            nuclear=np.zeros(shape),
            gain=np.zeros(shape),
            unsure=np.full(shape, np.nan),
        )
        self.rows: dict[tuple[int, int], Tensor] = {}  # H_{v,w}Q_w of the first basis, until the second joins it
        self.leading: dict[tuple[int, int], Tensor] = {}  # best right singular vector of H_{v,w} so far, (S, d_w)
        self.done, self.total = 0, planned + sum(min(d, probes) for d in self.sizes)

    def each(self, wanted: dict[int, Tensor]) -> Iterator[tuple[int, Column]]:
        """Columns of several nodes times rows of their own, as many from one pass over the data as fit."""
        queue = list(wanted.items())
        while queue:
            group, count = [queue.pop(0)], 0
            count = group[0][1].shape[1]
            while queue and count + queue[0][1].shape[1] <= self.products.at_once:
                count += queue[0][1].shape[1]
                group.append(queue.pop(0))
            if isinstance(self.products, BatchStream) and self.progress:
                self.products.tick = self._within(count)
            pieces = [(w, _as_pieces(rows, self.products.leaves[w], self.copies)) for w, rows in group]
            for (w, rows), column in zip(group, self.products.columns(pieces)):
                yield w, self._noted(w, rows, column)

    def apply(self, w: int, rows: Tensor) -> Column:
        return next(column for _, column in self.each({w: rows}))

    def _within(self, count: int) -> Callable[[float], None]:
        before, progress = self.done, self.progress
        return lambda share: progress(before + int(share * count), self.total) if progress and share < 1 else None

    def _noted(self, w: int, rows: Tensor, column: Column) -> Column:
        self.done += rows.shape[1]
        if self.progress:
            self.progress(self.done, self.total)
        return column

    def share(self, w: int, column: Column, weights: np.ndarray) -> None:
        """What every batch adds to the squared norms of column w, with the weights of its rows."""
        if column.spread is None:
            return
        for k, kind in enumerate(KINDS):
            shares = self.found.shares.setdefault(kind, np.zeros((len(column.spread), self.n, self.n)))
            shares[:, :, w] += column.spread[:, k] @ weights

    def fresh(self, w: int, count: int) -> Tensor:
        return _rows(draw(count, self.products.leaves[w], self.source), self.copies)


def sweep(
    products: Products | BatchStream,
    *,
    probes: int,
    seed: int,
    by_sample: bool,
    plain: bool = False,
    refine: int = 0,
    progress: Progress | None = None,
) -> Sweep:
    """Run the sweep over ``products`` with ``probes`` drawn by ``seed``. ``by_sample`` keeps examples apart; ``plain``
    spends all probes as fresh ones, without a basis; ``progress`` is called with (products done, all).

    ``refine`` adds rounds of Golub–Kahan (Lanczos on the diagonal) for all pairs at once, N products a node each: for
    blocks whose singular values fall slowly, where the few vectors of the bases see too little of the largest.
    """
    extra = refine * len(products.leaves) ** 2
    run = _Run(products, probes=probes, seed=seed, by_sample=by_sample, planned=extra, progress=progress)
    part = 0 if plain else max(1, probes // 4) if probes >= 4 else 0
    bases = _bases(run, part)
    for w in range(run.n):  # part 2, and the whole of nodes no wider than the probes
        if run.exact[w]:
            leaf = products.leaves[w][0]
            bases[w] = torch.eye(run.sizes[w], dtype=leaf.dtype, device=leaf.device).expand(run.copies, -1, -1)
    for w, column in run.each({w: basis for w, basis in enumerate(bases) if basis is not None}):
        _head(run, w, column)
    second = [_second(run, w, bases[w], part) for w in range(run.n)]
    extras = [0 if more is None else more.shape[1] for more in second]
    fresh = probes - (2 * part + max(extras) if part else 0)
    run.found.tail = {k: np.zeros((run.copies, run.n, run.n, fresh)) for k in KINDS}
    rest = {}
    for w in range(run.n):  # parts 3 and 4 together
        if run.exact[w]:
            continue
        z, more = run.fresh(w, fresh), second[w]
        for known in (bases[w], more):
            if known is not None:
                z = z - (z @ known.mT) @ known
        rest[w] = z if more is None else torch.cat([more, z], 1)
    for w, column in run.each(rest):
        both = [b for b in (bases[w], second[w]) if b is not None]
        _tail(run, w, column, extras[w], torch.cat(both, 1) if bases[w] is not None else None)
    if refine and run.leading:
        _refine(run, refine)
    return run.found


def _bases(run: _Run, part: int) -> list[Tensor | None]:
    """Part 1: sketch every column, and orthonormalise what arrives at each node."""
    sketches: list[Tensor | None] = [None] * run.n
    if not part or all(run.exact):
        return sketches
    # a column that will be known exactly is left out: its sketch would only help others a little
    for _, column in run.each({w: run.fresh(w, part) for w in range(run.n) if not run.exact[w]}):
        mix = draw(part, [run.products.flat[0].new_zeros(1)], run.source)[0]
        for v in range(run.n):
            if not run.exact[v]:
                piece, kept = _sketch(column, v, run.copies, mix), sketches[v]
                sketches[v] = piece if kept is None else kept + piece
    return [None if s is None else orthonormal(s) for s in sketches]


def _second(run: _Run, w: int, basis: Tensor | None, part: int) -> Tensor | None:
    """Part 3: leading left singular vectors of H_{w,v}Q_v over v, made orthogonal to Q_w, the most telling of them."""
    if run.exact[w] or basis is None:
        return None
    leading = []
    for v in range(run.n):
        rows = run.rows.get((w, v))  # (S, r, d_w)
        if rows is not None:
            _, vectors = torch.linalg.eigh(_gram(rows))
            lead = vectors[:, :, -1:].mT.to(rows.dtype) @ rows
            leading.append(lead / lead.norm(dim=2, keepdim=True).clamp_min(torch.finfo(lead.dtype).tiny))
    if not leading:
        return None
    new = torch.cat(leading, 1)
    for _ in range(2):
        new = new - (new @ basis.mT) @ basis
    _, vectors = torch.linalg.eigh(_gram(new))
    new = orthonormal(vectors[:, :, -min(part, new.shape[1]) :].mT.to(new.dtype) @ new)
    return orthonormal(new - (new @ basis.mT) @ basis)


def orthonormal(rows: Tensor) -> Tensor:
    """Orthonormal ``rows`` with the same span, (S, m, d) with m ≤ d; QR, which is stable for nearly dependent rows."""
    wide = rows if rows.dtype == torch.float32 else rows.double()  # LAPACK has no half precision
    return torch.linalg.qr(wide.mT)[0].mT.to(rows.dtype)


def _gram(rows: Tensor) -> Tensor:
    """(S, m, m) in float64; half precision is summed in it too."""
    wide = rows if rows.dtype in (torch.float32, torch.float64) else rows.float()
    return (wide @ wide.mT).double()


def _sketch(column: Column, v: int, copies: int, mix: Tensor) -> Tensor:
    """The parts of the column at v, each scaled to norm one so that weak blocks and weak parts count too."""
    out = _unit(_rows(column.gauss_newton[v], copies))
    tensor = column.tensor[v]
    if tensor is not None:
        out = out + mix * _unit(_rows(tensor, copies))
    return out


def _unit(rows: Tensor) -> Tensor:
    norm = rows.flatten(1).norm(dim=1)
    return rows / torch.where(norm > 0, norm, torch.ones_like(norm))[:, None, None]


def _parts(column: Column, v: int, copies: int) -> tuple[Tensor, Tensor, Tensor | None]:
    gn, pieces = _rows(column.gauss_newton[v], copies), column.tensor[v]
    tensor = None if pieces is None else _rows(pieces, copies)
    return gn if tensor is None else gn + tensor, gn, tensor


def _head(run: _Run, w: int, column: Column) -> None:
    run.share(w, column, np.ones(column.gauss_newton[0][0].shape[0]))
    for v in range(run.n):
        parts = _parts(column, v, run.copies)
        for kind, rows in zip(KINDS, parts):
            if rows is not None:
                run.found.head[kind][:, v, w] = _squares(rows).sum(1)
        squares, dtype = torch.linalg.eigvalsh(_gram(parts[0])), parts[0].dtype
        run.found.top[:, v, w], run.found.nuclear[:, v, w] = _largest_and_sum(squares, dtype)
        if not run.exact[w]:
            run.rows[v, w] = parts[0]


def _refine(run: _Run, rounds: int) -> None:
    """Golub–Kahan or Lanczos steps for the largest singular value of every pair, from the better of its two vectors."""
    found, starts = run.found, {}
    for v, w in run.leading:
        if v <= w and (w, v) in run.leading:
            better = found.top[:, v, w].sum() >= found.top[:, w, v].sum()
            starts[(v, w) if better else (w, v)] = run.leading[(v, w) if better else (w, v)]

    def apply(w: int, rows: Tensor) -> list[Tensor]:
        column = run.apply(w, rows)
        return [_parts(column, v, run.copies)[0] for v in range(run.n)]

    item = run.products.flat[0].element_size()
    for (v, w), (top, unsure) in leading_squares(starts, apply, rounds, run.products.memory // item).items():
        for at in ((slice(None), v, w), (slice(None), w, v)):
            found.top[at], found.unsure[at] = np.fmax(found.top[at], top), unsure


def _tail(run: _Run, w: int, column: Column, extra: int, basis: Tensor | None) -> None:
    """Add ``extra`` rows of the second basis to the head; the rest are samples of the tail."""
    found = run.found
    count = column.gauss_newton[0][0].shape[0]
    run.share(w, column, np.where(np.arange(count) < extra, 1.0, 1 / max(count - extra, 1)))
    for v in range(run.n):
        parts = _parts(column, v, run.copies)
        for kind, rows in zip(KINDS, parts):
            if rows is not None:
                squares = _squares(rows)
                found.head[kind][:, v, w] += squares[:, :extra].sum(1)
                found.tail[kind][:, v, w] = squares[:, extra:]
                found.spread[kind][:, v, w] = _variance(rows[:, extra:], run.sizes[w])
        first = run.rows.pop((v, w), None)
        if first is not None and basis is not None and extra:
            known = torch.cat([first, parts[0][:, :extra]], 1)
            values, vectors = torch.linalg.eigh(_gram(known))
            run.leading[v, w] = (vectors[:, :, -1:].mT.to(basis.dtype) @ basis)[:, 0]
            before = found.top[:, v, w]
            top, found.nuclear[:, v, w] = _largest_and_sum(values, known.dtype)
            found.gain[:, v, w] = 1 - np.divide(before, top, out=np.ones_like(before), where=top > 0)
            found.top[:, v, w] = top


def _squares(rows: Tensor) -> np.ndarray:
    return torch.linalg.vector_norm(rows, dim=2, dtype=torch.float64).square().cpu().numpy()


def _variance(rows: Tensor, size: int) -> np.ndarray:
    r"""Variance of $\|Hz\|^2$ for one probe, $2(\|A\|_F^2-\sum_iA_{ii}^2)$ with $A=H^\top H$.

    $\|A\|_F^2=E(Hz_i\cdot Hz_j)^2$, and of the diagonal it is known that
    $\sum_iA_{ii}^2\ge(\mathrm{tr}A)^2/d$ in ``size`` d coordinates.
    The k(k-1)/2 pairs of probes tell far more of it than the spread of k squares, which is small when they are low.
    """
    k = rows.shape[1]
    if k < 2:
        return np.zeros(rows.shape[0])
    gram = _gram(rows)
    off = gram.square().sum((1, 2)) - gram.diagonal(dim1=1, dim2=2).square().sum(1)
    whole = off / (k * (k - 1) / 2)
    least = 2 * gram.diagonal(dim1=1, dim2=2).mean(1).square() / size
    floor = max(0.25, 1 - k / 16) * whole  # few probes know neither of the two well
    return few_pairs(k) * torch.maximum(whole - least, floor).clamp_min(0).cpu().numpy()


def few_pairs(k: int) -> float:
    """By how much the variance from the pairs of ``k`` probes is widened, as that of Student's t: few do not know it
    well.
    """
    pairs = k * (k - 1) / 2
    return pairs / (pairs - 2) if pairs > 2 else 3.0


def _largest_and_sum(squares: Tensor, dtype: torch.dtype) -> tuple[np.ndarray, np.ndarray]:
    """The largest squared singular value, and the sum of the singular values, of (S, m) squares; rounding left out."""
    squares = squares.clamp_min(0)
    noise = squares.shape[1] * torch.finfo(dtype).eps * squares[:, -1:]
    kept = torch.where(squares > noise, squares, 0.0)
    return squares[:, -1].cpu().numpy(), kept.sqrt().sum(1).cpu().numpy()


def _rows(pieces: Pieces, copies: int) -> Tensor:
    """Pieces (m, ...) as (S, m, d)."""
    m = pieces[0].shape[0]
    if copies > 1:
        return pieces[0].reshape(m, copies, -1).transpose(0, 1)
    flat = [p.reshape(m, -1) for p in pieces]
    return (flat[0] if len(flat) == 1 else torch.cat(flat, 1))[None]


def _as_pieces(rows: Tensor, leaves: list[Tensor], copies: int) -> Pieces:
    m = rows.shape[1]
    if copies > 1:
        return [rows.transpose(0, 1).reshape(m, *leaves[0].shape)]
    split = rows[0].split([leaf.numel() for leaf in leaves], 1)
    return [p.reshape(m, *leaf.shape) for p, leaf in zip(split, leaves)]
