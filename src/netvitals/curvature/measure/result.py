"""What ``between_layers`` returns: matrices over pairs of nodes, their standard errors, and a page of words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from netvitals.capture import Result
from netvitals.curvature.engine.graph import NodeGraph
from netvitals.curvature.measure import metrics
from netvitals.curvature.measure.exact import Blocks, ExactBlock

METRICS = ("resonance", "coupling", "stable_rank", "gn_gap", "gauss_newton", "tensor")
FLAGS = ("stable_rank_is_bound", "effective_dimension_is_partial")
WHOLE, SCREEN = 5, 12  # nodes up to which all matrices fit a screen, and one of them


@dataclass(frozen=True, kw_only=True)
class InterlayerCurvature(Result):
    """Curvature between every pair of nodes; row v, column w.

    ``resonance`` is the Frobenius norm of H, ``gauss_newton`` and ``tensor`` those of its two parts. Standard errors
    are of the probes (rounding only, where a column is exact). ``spectral_norm`` is known from below; where it had not
    converged, ``stable_rank_is_bound`` is true and the stable rank at most about what is given. ``per_sample`` holds
    the same matrices by example, shape (B, N, N), when the reduction keeps examples apart; the N×N numbers and their
    errors are then over examples. Of many batches, ``sampling`` has by metric the standard error over them (N×N): how
    far other data would have given other numbers.

    Returned by :func:`between_layers`.

    Attributes:
        nodes: names, in the order of the forward pass.
        sizes: dimension of each node.
        space: ``activation`` or ``parameter``.
        method: ``exact`` or ``stochastic``.
        reduction: how examples were put together.
        probes: products spent on each node.
        seed: seed of the random probes.
        examples: in the batch.
        loss: of the batch.
        resonance: (N, N), Frobenius norm of each block of H.
        resonance_stderr: its standard error.
        gauss_newton: (N, N), that of the Gauss–Newton part.
        gauss_newton_stderr: its standard error.
        tensor: (N, N), that of the rest, H − GN.
        tensor_stderr: its standard error.
        coupling: (N, N), the block against the two diagonal ones.
        coupling_stderr: its standard error.
        stable_rank: (N, N), directions that the block uses.
        stable_rank_stderr: its standard error.
        gn_gap: (N, N), ``tensor`` over ``gauss_newton``.
        gn_gap_stderr: its standard error.
        spectral_norm: (N, N), largest singular value, from below.
        effective_dimension: (N, N), $d_{eff}=\\|H\\|_*/\\|H\\|_2$: how many directions of the largest size would have
            the sum of all singular values; of the part that the probes span, which is less as a rule, and NaN where
            this part has less than three quarters of the squared norm.
        cost: in gradient-equivalents.
        products: Hessian-vector products behind the numbers.
        graph: how the nodes follow each other.
        chosen: how the nodes were chosen.
        floor: gaps below this are rounding.
        stable_rank_is_bound: (N, N), where the spectral norm had not converged.
        effective_dimension_is_partial: (N, N), where the probes do not span the block.
        per_sample: the matrices by example, (B, N, N), where the reduction keeps examples apart.
        sampling: standard error over many batches, by metric.
        blocks: the matrices themselves, with ``method="exact"``.
        skipped: node that was left out → reason.
    """

    nodes: tuple[str, ...]
    sizes: tuple[int, ...]
    space: str
    method: str
    reduction: str
    probes: int
    seed: int
    examples: int
    loss: float
    resonance: np.ndarray
    resonance_stderr: np.ndarray
    gauss_newton: np.ndarray
    gauss_newton_stderr: np.ndarray
    tensor: np.ndarray
    tensor_stderr: np.ndarray
    coupling: np.ndarray
    coupling_stderr: np.ndarray
    stable_rank: np.ndarray
    stable_rank_stderr: np.ndarray
    gn_gap: np.ndarray
    gn_gap_stderr: np.ndarray
    spectral_norm: np.ndarray
    effective_dimension: np.ndarray
    cost: float
    products: int
    graph: NodeGraph
    chosen: str
    floor: float
    stable_rank_is_bound: np.ndarray
    effective_dimension_is_partial: np.ndarray
    per_sample: dict[str, np.ndarray] = field(default_factory=dict)
    sampling: dict[str, np.ndarray] = field(default_factory=dict)
    blocks: Blocks | None = None
    skipped: dict[str, str] = field(default_factory=dict)

    def block(self, v: str, w: str) -> ExactBlock:
        """The matrices (H, GN, T) of nodes ``v`` and ``w``; only with ``method="exact"``."""
        if self.blocks is None:
            raise ValueError(
                "this result was estimated stochastically: it contains the norms of the Hessian blocks, but not "
                "the blocks themselves. Use method='exact'"
            )
        return self.blocks.block(v, w)

    def at(self, v: str, w: str) -> dict[str, float]:
        """All numbers of the pair ``v``, ``w``."""
        i, j = self.position(v), self.position(w)
        found = {k + end: float(getattr(self, k + end)[i, j]) for k in METRICS for end in ("", "_stderr")}
        return found | {f"{k}_sampling": float(x[i, j]) for k, x in self.sampling.items()}

    def rows(self) -> list[dict[str, Any]]:
        """One row a pair of nodes, each pair once: the blocks (v, w) and (w, v) are transposes of each other."""
        return [
            {"v": v, "w": w, **self.at(v, w), **self._spectral(i, i + j)}
            for i, v in enumerate(self.nodes)
            for j, w in enumerate(self.nodes[i:])
        ]

    def _spectral(self, i: int, j: int) -> dict[str, Any]:
        sizes = {k: float(getattr(self, k)[i, j]) for k in ("spectral_norm", "effective_dimension")}
        return sizes | {k: bool(getattr(self, k)[i, j]) for k in FLAGS}

    def to_dict(self) -> dict[str, Any]:
        """Plain data; the dense blocks of an exact result stay out, ``block(v, w)`` has them."""
        found = Result.to_dict(replace(self, blocks=None))
        del found["blocks"]
        return found

    def position(self, name: str) -> int:
        """The row of the node ``name`` in every matrix."""
        if name not in self.nodes:
            raise KeyError(f"there is no node {name!r}; the nodes are {', '.join(self.nodes)}")
        return self.nodes.index(name)

    @property
    def global_gap(self) -> float:
        """Ratio of sums over pairs i ≤ j."""
        return metrics.gap_of_sums(self.tensor, self.gauss_newton)

    @property
    def mean_gap(self) -> float:
        """Mean of ratios over pairs i ≤ j: every pair counts alike, however weak."""
        return float(np.mean(self.gn_gap[np.triu_indices(len(self.nodes))]))

    @property
    def missed(self) -> np.ndarray:
        r"""$\|H-GN\|_F/\|H\|_F$ of every block: the share of it that Gauss–Newton leaves out; 0 for a zero block."""
        size = self.resonance
        return np.divide(self.tensor, size, out=np.zeros_like(self.tensor), where=size > 0)

    @property
    def missed_in_all(self) -> tuple[float, float]:
        """The same of the matrix over all nodes, and its standard error."""
        t, h = (self.tensor**2).sum(), (self.resonance**2).sum()
        if not h > 0:
            return 0.0, 0.0
        spread = lambda x, e, total: np.sqrt(((2 * x * e) ** 2).sum()) / (2 * total) if total > 0 else 0.0
        relative = np.hypot(
            spread(self.tensor, self.tensor_stderr, t), spread(self.resonance, self.resonance_stderr, h)
        )
        return float(np.sqrt(t / h)), float(np.sqrt(t / h) * relative)

    @property
    def off_diagonal_mass(self) -> float:
        r"""$\Phi = 1-\sum_v\|H_{v,v}\|^2/\|H\|^2$: the share of curvature that a block-diagonal method drops."""
        squares = self.resonance**2
        return float(1 - np.trace(squares) / squares.sum()) if squares.sum() > 0 else float("nan")

    def __str__(self) -> str:
        how = f"{self.probes} probes a node, seed {self.seed}" if self.method == "stochastic" else "exact"
        lines = [
            f"Curvature between {len(self.nodes)} nodes in {self.space} space ({how}, {self.reduction} over "
            f"{self.examples} examples, {self.cost:.0f} gradient-equivalents)",
            f"GN-gap over all pairs {self.global_gap:.3g}; {100 * self.off_diagonal_mass:.0f} % of the "
            "curvature lies between different nodes",
        ]
        if len(self.nodes) <= WHOLE:
            for title, key, fmt in _TABLES:
                errors = getattr(self, key + "_stderr", np.zeros_like(self.resonance))
                lines += ["", title, *_table(self.nodes, getattr(self, key), errors, fmt)]
        else:
            lines += ["", *self._own(), "", "coupling", *self._coupling(), "", "to_frame() has every pair"]
        if open_ones := int(np.triu(self.stable_rank_is_bound).sum()):
            lines.append(f"{open_ones} stable ranks are upper bounds (spectral norm not converged): raise refine=")
        if open_ones := int(np.triu(self.effective_dimension_is_partial).sum()):
            lines.append(f"{open_ones} values of d_eff are of the part that the probes span, or unknown: raise probes=")
        return "\n".join([*lines, *skipped_line(self.skipped)])

    def _own(self) -> list[str]:
        """The numbers of each node with itself."""
        wide = max(len(n) for n in self.nodes[:SCREEN])
        diagonal = {key: np.diag(getattr(self, key)) for _, key, _ in _TABLES}
        rows = [
            n.ljust(wide)
            + "".join(fmt.format(diagonal[key][i]).rjust(16) for _, key, fmt in _TABLES if key != "coupling")
            for i, n in enumerate(self.nodes)
        ]
        head = "".join(title.rjust(16) for title, key, _ in _TABLES if key != "coupling")
        return [" " * wide + head, *shortened(rows, SCREEN)]

    def _coupling(self) -> list[str]:
        first = slice(0, SCREEN)
        names, at = self.nodes[first], (first, first)
        lines = _table(names, self.coupling[at], self.coupling_stderr[at], "{:.3f}")
        more = len(self.nodes) - len(names)
        return [*lines, *([f"… and {more} more nodes"] if more else [])]


_TABLES = (
    ("resonance", "resonance", "{:.2e}"),
    ("coupling", "coupling", "{:.3f}"),
    ("stable rank", "stable_rank", "{:.2f}"),
    ("dimension d_eff", "effective_dimension", "{:.1f}"),
    ("GN-gap", "gn_gap", "{:.2g}"),
)


def shortened(lines: Sequence[str], most: int = 30) -> list[str]:
    """At most ``most`` lines, the last of which says how many are missing.

    >>> shortened(["a", "b", "c"], most=2)
    ['a', '… and 2 more']
    """
    return list(lines) if len(lines) <= most else [*lines[: most - 1], f"… and {len(lines) - most + 1} more"]


def skipped_line(skipped: Mapping[str, str], most: int = 3) -> list[str]:
    """What was not measured, in a line; nothing when all was.

    >>> skipped_line({"head": "frozen"})
    ['skipped: head (frozen)']
    """
    named = [f"{place} ({why})" for place, why in skipped.items()]
    return [f"skipped: {', '.join(shortened(named, most))}"] if named else []


def _table(names: tuple[str, ...], values: np.ndarray, errors: np.ndarray, fmt: str) -> list[str]:
    cells = [[fmt.format(x) for x in row] for row in values]
    label = max(len(n) for n in names)
    wide = [max([len(r[j]) for r in cells] + [min(len(names[j]), 10)]) for j in range(len(names))]
    head = " " * label + "  " + "  ".join(n[-10:].rjust(w) for n, w in zip(names, wide))
    rows = [n.ljust(label) + "  " + "  ".join(c.rjust(w) for c, w in zip(row, wide)) for n, row in zip(names, cells)]
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.nanmedian(np.where(values != 0, errors / np.abs(values), np.nan)) if np.any(errors > 0) else 0.0
    return [head, *rows, *([f"(median standard error {100 * relative:.1f} %)"] if relative > 0 else [])]
