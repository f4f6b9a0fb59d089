r"""From the arrays of a sweep to metrics with standard errors (delta method on the fresh probes)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from netvitals.curvature.measure.metrics import floor, gn_gap, ratio
from netvitals.curvature.measure.sweeping import KINDS, Sweep, few_pairs

MOST = 0.25  # relative variance of a tail beyond which its mean is not moved further
UNSEEN = 0.25  # share of a squared norm outside the bases above which the sum of singular values is not known
CONVERGED = 0.02  # a squared spectral norm that may still grow by a larger share gives a bound, not an estimate


@dataclass(frozen=True)
class Estimates:
    """Arrays (S, N, N), each with the standard error of the probes."""

    frobenius: dict[str, np.ndarray]
    frobenius_stderr: dict[str, np.ndarray]
    spectral: np.ndarray
    coupling: np.ndarray
    coupling_stderr: np.ndarray
    stable_rank: np.ndarray
    stable_rank_stderr: np.ndarray
    stable_rank_is_bound: np.ndarray  # the spectral norm had not converged: the rank is at most about this
    effective_dimension: np.ndarray
    effective_dimension_is_partial: np.ndarray  # of H Q: directions outside the bases may add to it
    gap: np.ndarray
    gap_stderr: np.ndarray


def estimates(found: Sweep, sizes: list[int]) -> Estimates:
    """Both orders of a pair estimate the same norm; they are averaged, and an exact column replaces its partner."""
    n = len(sizes)
    sure = found.exact.astype(float)
    share = np.where(sure[None, :] == sure[:, None], 0.5, sure[None, :])[None]  # of the order (v, w)
    share[:, np.arange(n), np.arange(n)] = 1.0
    both = lambda x: share * x + (1 - share) * x.swapaxes(1, 2)
    variance = lambda x: share**2 * x + (1 - share) ** 2 * x.swapaxes(1, 2)

    k = max(found.tail["H"].shape[3], 1)
    once = {kind: found.head[kind] + found.tail[kind].sum(3) / k for kind in KINDS}
    plain = {kind: both(once[kind]) for kind in KINDS}
    moved = {kind: both(_moved(found.tail[kind], found.spread[kind])) for kind in KINDS}
    square = {kind: plain[kind] + 0.75 * moved[kind] for kind in KINDS}  # of which the root is taken
    error = {kind: np.sqrt(variance(found.spread[kind]) / k) for kind in KINDS}
    fro = {kind: np.sqrt(square[kind]) for kind in KINDS}
    fro_se = {kind: ratio(error[kind], 2 * fro[kind]) for kind in KINDS}

    other = found.top.swapaxes(1, 2)
    top, low = np.fmax(found.top, other), np.fmin(found.top, other)
    gain = np.minimum(found.gain, found.gain.swapaxes(1, 2))
    # from below: two bounds that differ, or a second basis that still gained, have not converged
    unsure = np.where(np.isnan(found.unsure), np.hypot(ratio(top - low, top), gain / 3), found.unsure)
    settled = np.logical_or(sure[None, :], sure[:, None])[None]  # a column known exactly has its spectral norm too
    unsure = np.where(settled, 0.0, unsure)
    rank = np.minimum(np.array(sizes)[:, None], np.array(sizes)[None, :])
    known = np.sqrt(top) > floor(np.sqrt(top))
    d = np.where(known, np.clip(ratio(plain["H"] + moved["H"], top), 1.0, rank), np.nan)
    d_se = np.where(known, np.hypot(ratio(error["H"], top), unsure * d), np.nan)

    # Σσ of H Q is at most the nuclear norm, and the tail adds √r ‖tail‖ at most, with r the directions that are left
    nuclear = np.fmax(found.nuclear, found.nuclear.swapaxes(1, 2))
    seen = both(found.tail["H"].sum(3) / k) <= UNSEEN * plain["H"]
    effective = np.where(known & seen, ratio(nuclear, np.sqrt(top)), np.nan)
    left = np.sqrt(rank * ratio(both(found.tail["H"].sum(3) / k), top))
    more = known & ~settled & (left > CONVERGED * np.nan_to_num(effective))

    centred = {kind: found.tail[kind] - found.tail[kind].mean(3, keepdims=True) for kind in KINDS}
    gap = gn_gap(np.sqrt(plain["T"]), np.sqrt(plain["GN"]))
    drift = lambda t, gn, weight: (
        weight[..., None] * (ratio(t, plain["T"][..., None]) - ratio(gn, plain["GN"][..., None]))
    )
    first = drift(centred["T"], centred["GN"], share)
    second = drift(centred["T"].swapaxes(1, 2), centred["GN"].swapaxes(1, 2), 1 - share)
    gap_se = gap * np.sqrt(_mean_variance(first) + _mean_variance(second)) / 2
    # on the diagonal there are the probes of one node only: ν = k - 1, and the variance of Student's t is larger
    gap_se[:, np.arange(n), np.arange(n)] *= np.sqrt(max(k - 2, 0.5) / max(k - 3, 0.5))
    c, c_se = _coupling(once["H"], centred["H"])
    return Estimates(
        frobenius=fro,
        frobenius_stderr=fro_se,
        spectral=np.sqrt(top),
        coupling=c,
        coupling_stderr=c_se,
        stable_rank=d,
        stable_rank_stderr=d_se,
        stable_rank_is_bound=known & (unsure > CONVERGED),
        effective_dimension=effective,
        effective_dimension_is_partial=more,
        gap=gap,
        gap_stderr=gap_se,
    )


def _moved(tail: np.ndarray, spread: np.ndarray) -> np.ndarray:
    r"""By how much the tail is moved, $\rho\bar t$, to be centred within its error; $\rho$ is its relative variance.

    The mean of k squares is about $t\chi^2_\nu/\nu$ with $\rho=2/\nu$, and its error is read off the same squares:
    where they are low by chance their error is low too. Turned around, $t=\bar t\,\nu/\chi^2_\nu$ has the mean
    $\bar t\,\nu/(\nu-2)$, and in units of its error an estimate there is off by nothing on average; so is the root of
    one that was moved by three quarters of it.
    """
    k = max(tail.shape[3], 1)
    mean = tail.sum(3) / k
    return mean * np.minimum(ratio(spread / (k * few_pairs(k)), mean**2), MOST)


def over_batches(shares: dict[str, np.ndarray], weights: np.ndarray) -> dict[str, np.ndarray]:
    r"""Standard errors over batches, of what other data or other draws would have given; from shares (batches, N, N).

    A batch moves $\|\bar H\|$ by $u_b=\langle\bar H,H_b\rangle/\|\bar H\|$, whose weighted mean is the norm; ratios of
    norms follow by the chain rule. Of the stable rank it is not known.
    """
    if not shares:
        return {}
    share = weights / weights.sum()
    moved, norm = {}, {}
    for kind in KINDS:
        both = (shares[kind] + shares[kind].swapaxes(1, 2)) / 2
        square = np.maximum(np.tensordot(share, both, 1), 0.0)
        norm[kind] = np.sqrt(square)
        moved[kind] = ratio(both, norm[kind][None])
    relative = {kind: ratio(moved[kind], norm[kind][None]) for kind in KINDS}
    own = np.diagonal(relative["H"], axis1=1, axis2=2)
    error = lambda values: sampling_error(values, weights)
    c = np.sqrt(ratio(norm["H"] ** 2, np.outer(norm["H"].diagonal(), norm["H"].diagonal())))
    return {
        "resonance": error(moved["H"]),
        "gauss_newton": error(moved["GN"]),
        "tensor": error(moved["T"]),
        "coupling": c * error(relative["H"] - (own[:, :, None] + own[:, None, :]) / 2),
        "gn_gap": ratio(norm["T"], norm["GN"]) * error(relative["T"] - relative["GN"]),
        "stable_rank": np.full_like(c, np.nan),
    }


def sampling_error(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    r"""Standard error of a weighted mean over batches, $\sqrt{\frac{B}{B-1}\sum_b w_b^2(x_b-\bar x)^2}$; NaN for one.

    >>> float(sampling_error(np.array([1.0, 3.0]), np.ones(2)))
    1.0
    """
    b, share = len(weights), weights / weights.sum()
    if b < 2:
        return np.full(values.shape[1:], np.nan)
    off = values - np.tensordot(share, values, 1)
    return np.sqrt(b / (b - 1) * np.tensordot(share**2, off**2, 1))


def frobenius(squares: np.ndarray, exact: bool) -> tuple[float, float]:
    """Frobenius norm from squared products with the basis, or with probes, and its standard error.

    Few squares know their own spread badly, and are low where it is: the mean is moved by three quarters of its
    relative variance, as in :func:`_moved`, and the error widened as Student's t is.
    """
    if exact:
        return float(np.sqrt(squares.sum())), 0.0
    k, mean = squares.size, float(squares.mean())
    if mean <= 0:
        return 0.0, 0.0
    variance = float(squares.var(ddof=1)) / k
    size = (mean * (1 + 0.75 * min(variance / mean**2, MOST))) ** 0.5
    return size, (variance * (k - 1) / max(k - 3, 0.5)) ** 0.5 / (2 * size)


def _coupling(f: np.ndarray, centred: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    r"""$C=(F_{vw}F_{wv}/(F_{vv}F_{ww}))^{1/4}$, numerators and denominators with the same probes $z_w$, $z_v$."""
    n = f.shape[1]
    at = np.arange(n)
    own = f[:, at, at]  # F_ww, seen with the probes of w
    fine = np.sqrt(own)[:, None, :] > floor(np.sqrt(f))
    share = ratio(f, np.where(fine, own[:, None, :], 0.0), np.nan)  # F_vw / F_ww
    c = (share * share.swapaxes(1, 2)) ** 0.25
    drift = ratio(centred, f[..., None]) - ratio(centred[:, at, at][:, None], own[:, None, :, None])
    noise = _mean_variance(drift) / 16
    return c, c * np.sqrt(noise + noise.swapaxes(1, 2))


def _mean_variance(samples: np.ndarray) -> np.ndarray:
    """Variance of a mean over the last axis.

    Few probes make the spread itself uncertain. Two such spreads go into a ratio, one of each node's probes: ν/(ν-2)
    with ν = 2(k-1) is the variance of Student's t for both together.
    """
    k = samples.shape[-1]
    if k < 2:
        return np.zeros(samples.shape[:-1])
    return samples.var(-1, ddof=1) / k * ((k - 1) / max(k - 2, 0.5))
