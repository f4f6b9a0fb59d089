r"""From the tallies of a sweep to metrics with standard errors (delta method on the fresh probes)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from netvitals.curvature.metrics import FLOOR, ZERO
from netvitals.curvature.sweep import Sweep, Tally


@dataclass(frozen=True)
class Estimates:
    """N×N arrays (by sample: S×N×N), each with the standard error of the probes."""

    frobenius: dict[str, np.ndarray]
    frobenius_stderr: dict[str, np.ndarray]
    spectral: np.ndarray
    coupling: np.ndarray
    coupling_stderr: np.ndarray
    stable_rank: np.ndarray
    stable_rank_stderr: np.ndarray
    gap: np.ndarray
    gap_stderr: np.ndarray


def estimates(found: Sweep, sizes: list[int]) -> Estimates:
    """Both orders of a pair estimate the same norm; they are averaged, and an exact column replaces its partner."""
    n, s = len(sizes), found.copies
    shape = (s, n, n)
    names = ("H", "GN", "T")
    fro = {k: np.zeros(shape) for k in names}
    fro_se = {k: np.zeros(shape) for k in names}
    out = {k: np.full(shape, np.nan) for k in ("spectral", "c", "c_se", "d", "d_se", "g", "g_se")}
    tally = lambda v, w: found.tallies[v][w]
    for v in range(n):
        for w in range(n):
            sides = [(tally(v, w), w), (tally(w, v), v)] if v != w else [(tally(v, v), v)]
            sure = [side for side in sides if found.exact[side[1]]]
            used = [t for t, _ in (sure or sides)]
            square: dict[str, np.ndarray] = {}
            influence, errors = {}, {}
            for k in names:
                square[k] = np.mean([_square(t, k) for t in used], axis=0)
                influence[k] = [_centred(t, k) / len(used) for t in used]
                fro[k][:, v, w] = np.sqrt(square[k])
                errors[k] = _square_stderr(used, k)
                fro_se[k][:, v, w] = _ratio(errors[k], 2 * fro[k][:, v, w])
            tops = np.array([t.top for t, _ in sides])
            top = tops.max(0)
            # power iteration from below: two bounds that differ, or a last step that still gained, have not converged
            unsure = np.hypot(_ratio(top - tops.min(0), top), np.min([t.gain for t, _ in sides], axis=0) / 3)
            out["spectral"][:, v, w] = np.sqrt(top)
            rank = min(sizes[v], sizes[w])
            out["d"][:, v, w] = np.where(~(top >= ZERO), np.nan, np.clip(_ratio(square["H"], top), 1.0, rank))
            noise = np.hypot(_ratio(errors["H"], top), unsure * out["d"][:, v, w])
            out["d_se"][:, v, w] = np.where(~(top >= ZERO), np.nan, noise)
            gn, t = fro["GN"][:, v, w], fro["T"][:, v, w]
            out["g"][:, v, w] = t / (gn + FLOOR)
            spread = [_ratio(a, square["T"][:, None]) - _ratio(b, square["GN"][:, None])
                      for a, b in zip(influence["T"], influence["GN"])]
            out["g_se"][:, v, w] = out["g"][:, v, w] * _stderr(spread) / 2
            out["c"][:, v, w], out["c_se"][:, v, w] = _coupling(found, v, w)
    return Estimates(fro, fro_se, out["spectral"], out["c"], out["c_se"], out["d"], out["d_se"], out["g"], out["g_se"])


def _coupling(found: Sweep, v: int, w: int) -> tuple[np.ndarray, np.ndarray]:
    r"""$C=(F_{vw}F_{wv}/(F_{vv}F_{ww}))^{1/4}$, numerators and denominators with the same probes $z_w$, $z_v$."""
    one = np.ones(found.copies)
    if v == w:
        r = np.sqrt(_square(found.tallies[v][v], "H"))
        return np.where(r > FLOOR, one, np.nan), np.where(r > FLOOR, 0 * one, np.nan)
    logs, spreads = 0.0 * one, []
    for a, b in ((v, w), (w, v)):       # the probes sit at b
        over, under = found.tallies[a][b], found.tallies[b][b]
        f, g = _square(over, "H"), _square(under, "H")
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = logs + np.log(np.where(f > 0, f, np.nan)) - np.log(np.where(np.sqrt(g) > FLOOR, g, np.nan))
        spreads.append((_ratio(_centred(over, "H"), f[:, None]) - _ratio(_centred(under, "H"), g[:, None])) / 4)
    c = np.exp(logs / 4)
    zero = (_square(found.tallies[v][w], "H") == 0) & np.isfinite(_square(found.tallies[v][v], "H"))
    return np.where(zero, 0.0, c), np.where(zero, 0.0, c * _stderr(spreads))


def _square(t: Tally, kind: str) -> np.ndarray:
    tail = t.tail[kind]
    return t.head[kind] + (tail.mean(1) if tail.shape[1] else 0.0)


def _centred(t: Tally, kind: str) -> np.ndarray:
    tail = t.tail[kind]
    return tail - tail.mean(1, keepdims=True) if tail.shape[1] else np.zeros((len(t.head[kind]), 1))


def _square_stderr(used: list[Tally], kind: str) -> np.ndarray:
    """Standard error of the averaged ‖H‖² from the variance of one probe."""
    total = sum(t.spread[kind] / max(t.tail[kind].shape[1], 1) for t in used)
    return np.sqrt(total) / len(used)


def _stderr(parts: list[np.ndarray]) -> np.ndarray:
    """Standard error of a sum of means over independent probe series, from centred samples (S, k).

    Few probes make the spread itself uncertain; the factor (k-1)/(k-3) is the variance of Student's t.
    """
    total = np.zeros(parts[0].shape[0])
    for p in parts:
        k = p.shape[1]
        if k > 1:
            total = total + p.var(1, ddof=1) / k * ((k - 1) / max(k - 3, 1))
    return np.sqrt(total)


def _ratio(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    a, b = np.broadcast_arrays(np.asarray(a, float), np.asarray(b, float))
    return np.divide(a, b, out=np.zeros_like(a), where=b > 0)
