"""Checks of the rate primitive and of Watanabe's invariants on models whose answers are known."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from netvitals import singular
from netvitals.singular.laws.fluctuation import functional_variance_mc, nu_data_free, nu_frozen
from netvitals.singular.laws.geometry import high_curvature_volume, mean_map_metric, sectional_curvature
from netvitals.singular.laws.rlct import rlct_single
from netvitals.singular.laws.volume import eps_scan_volume, tied_crossing_volume
from netvitals.singular.networks import zoo
from netvitals.singular.orders.crossing import recover_crossing
from netvitals.singular.orders.spectrum import fisher_matrix, fisher_spectrum
from netvitals_lab import Row

f64 = torch.float64
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda z: z,
    "relu": torch.relu,
    "tanh": torch.tanh,
    "gelu": torch.nn.functional.gelu,
}


def primitive(size: int, seed: int) -> list[Row]:
    """Order, Fisher slope and Fisher–KL ratio of every specimen of the zoo."""
    rows: list[Row] = []
    for specimen in zoo.specimens():
        found = zoo.examine(specimen)
        if specimen.order is not None:
            rows.append(
                {
                    "model": specimen.name,
                    "order": specimen.order,
                    "estimate": found.estimate,
                    "ratio": found.ratio,
                    "lam": specimen.lam,
                    "m": specimen.m,
                    "lam_found": found.lam,
                    "m_found": found.m,
                    "agrees": found.agrees,
                    "ts": found.scan.ts.tolist(),
                    "fisher": found.scan.fisher.tolist(),
                }
            )
    return rows


def dead_units(size: int, seed: int) -> list[Row]:
    """k of a dead hidden unit's joint mode, by activation and likelihood."""
    rows: list[Row] = []
    gen = torch.Generator().manual_seed(seed)
    x = torch.randn(size, 4, generator=gen, dtype=f64)
    live1, live2 = torch.randn(3, 4, generator=gen, dtype=f64), torch.randn(2, 3, generator=gen, dtype=f64)
    direction = torch.randn(6, generator=gen, dtype=f64)
    for name, phi in ACTIVATIONS.items():

        def outputs(theta: Tensor, phi: Callable[[Tensor], Tensor] = phi) -> Tensor:
            return phi(x @ live1.T) @ live2.T + phi(x @ theta[:4])[:, None] * theta[4:]

        for family in ("gaussian", "categorical"):
            found = singular.kl_order(
                outputs, torch.zeros(6, dtype=f64), direction, family, ts=np.geomspace(1e-4, 1e-2, 10).tolist()
            )
            rows.append(
                {"activation": name, "family": family, "order": found.order, "slope": found.slope, "ratio": found.ratio}
            )
    return rows


def selection(size: int, seed: int) -> list[Row]:
    """Partition of the Fisher spectrum, and how fast the transversal eigenvector turns to v."""
    rows: list[Row] = []
    ts = np.geomspace(1e-3, 1e-2, 5).tolist()
    for (d, h, o), expected in (((4, 3, 4), (9, 12, 3)), ((6, 4, 5), (16, 24, 4))):
        gen = torch.Generator().manual_seed(seed)
        x = torch.randn(60, d, generator=gen, dtype=f64)
        a, b = torch.randn(h, d, generator=gen, dtype=f64), torch.randn(o, h, generator=gen, dtype=f64)
        a[-1], b[:, -1] = 0, 0
        row, column = torch.zeros(h, d, dtype=f64), torch.zeros(o, h, dtype=f64)
        row[-1], column[:, -1] = torch.randn(d, generator=gen, dtype=f64), torch.randn(o, generator=gen, dtype=f64)

        def outputs(theta: Tensor, x: Tensor = x, d: int = d, h: int = h, o: int = o) -> Tensor:
            return x @ theta[: h * d].reshape(h, d).T @ theta[h * d :].reshape(o, h).T

        found = singular.classify_spectrum(
            outputs, torch.cat([a.flatten(), b.flatten()]), torch.cat([row.flatten(), column.flatten()]), ts
        )
        counts = tuple(found.count(n) for n in ("zero", "constant", "transversal"))
        rows.append(
            {
                "what": "partition",
                "model": f"reduced rank {d}-{h}-{o}",
                "found": list(counts),
                "expected": list(expected),
                "ts": ts,
                "spectrum": [[v.label, v.values.tolist()] for v in found.directions],
            }
        )
    for k, j in ((2, 2), (3, 1), (2, 3)):

        def family(theta: Tensor, k: int = k, j: int = j) -> Tensor:
            return torch.stack([theta[0] ** k, theta[0] ** j * theta[1] + theta[0] ** (j + k)])[None]

        found = singular.classify_spectrum(family, torch.zeros(2, dtype=f64), torch.tensor([1.0, 0.0]), ts)
        angles = [_angle(family, t) for t in ts]
        rows.append(
            {
                "what": "family",
                "model": f"k={k}, j={j}",
                "transversal": [v.order for v in found.of("transversal")],
                "tangential": [v.order for v in found.of("tangential")],
                "k": k,
                "j": j,
                "ts": ts,
                "spectrum": [[v.label, v.values.tolist()] for v in found.directions],
                "angle_slope": singular.rate_fit(ts, angles, floor=0.0).slope,
                "angle": angles[0],
            }
        )
    return rows


def _angle(family: Callable[[Tensor], Tensor], t: float) -> float:
    """Sine of the angle between the path and the eigenvector nearest to it."""
    _, vectors = fisher_spectrum(family, torch.tensor([t, 0.0], dtype=f64))
    along = vectors[0].abs()
    return float(vectors[1].abs()[int(along.argmax())])


def crossings(size: int, seed: int) -> list[Row]:
    rows: list[Row] = []
    for ks in ((1, 1), (1, 2), (2, 2), (2, 3), (3, 1), (3, 3), (1, 2, 3), (2, 2, 2)):

        def monomial(theta: Tensor, powers: tuple[int, ...] = ks) -> Tensor:
            return (theta ** torch.tensor(powers, dtype=f64)).prod().reshape(1, 1)

        normals = list(torch.eye(len(ks), dtype=f64))
        found = recover_crossing(monomial, torch.zeros(len(ks), dtype=f64), normals)
        rows.append(
            {
                "ks": list(ks),
                "error": max(abs(e - k) for e, k in zip(found.estimates, ks)),
                "generic": found.generic - sum(ks),
                "lam": found.lam,
                "m": found.m,
                "ray": 1 / (2 * sum(ks)),
            }
        )
    return rows


def reduced_rank(size: int, seed: int) -> list[Row]:
    """Closed form of λ against the limits that are known: regular, full rank, transposition."""
    rows: list[Row] = []
    for n, h, m in itertools.product((2, 3, 4, 6), repeat=3):
        for r in range(min(n, h, m) + 1):
            lam, mult = singular.rlct_reduced_rank(n, h, m, r)
            flipped = singular.rlct_reduced_rank(m, h, n, r)
            bound = (h * (n + m) - h * h) / 2 if h <= min(n, m) else n * m / 2
            full = r == min(n, h, m)
            rows.append(
                {
                    "shape": [n, h, m, r],
                    "lam": lam,
                    "m": mult,
                    "symmetric": (lam, mult) == flipped,
                    "below": lam <= bound + 1e-12,
                    "regular": not full or abs(lam - bound) < 1e-12,
                }
            )
    return rows


def fluctuation(size: int, seed: int) -> list[Row]:
    """ν by quadrature, by simulation at two coefficients, and over β and h."""
    rows: list[Row] = []
    for k in range(1, 11):
        rows.append(
            {
                "what": "table",
                "k": k,
                "nu": singular.nu(k),
                "free": nu_data_free(k),
                "frozen": nu_frozen(k),
            }
        )
    for k in (1, 2, 3, 4):
        for i, scale in enumerate((0.5, 2.0)):  # data of their own: with the same ones the answer is the same
            found = functional_variance_mc(k, n=1000, data_sets=size, scale=scale, seed=seed + i)
            rows.append(
                {
                    "what": "simulation",
                    "k": k,
                    "scale": scale,
                    "nu": found.nu,
                    "nu_stderr": found.nu_stderr,
                    "predicted": singular.nu(k),
                    "general": found.generalisation,
                    "general_stderr": found.generalisation_stderr,
                    "training": found.training,
                    "training_stderr": found.training_stderr,
                    "lam": 1 / (2 * k),
                }
            )
        for beta in (0.1, 0.5, 2.0, 10.0):
            rows.append({"what": "temperature", "k": k, "beta": beta, "nu": singular.nu(k, beta=beta)})
    for h in (0, 1, 2, 3):
        rows.append(
            {
                "what": "prior",
                "k": 2,
                "h": h,
                "nu": singular.nu(2, h),
                "free": nu_data_free(2, h),
                "lam": rlct_single(2, h=h)[0],
            }
        )
    return rows


def volumes(size: int, seed: int) -> list[Row]:
    """λ and m from the volume of {K < ε}, with and without a prior; the exact law of tied crossings."""
    cases: list[tuple[str, Callable[[Tensor], Tensor], int, float, float, int]] = [
        ("u⁴", lambda u: u[:, 0] ** 4, 1, 0.0, 0.25, 1),
        ("u²v²", lambda u: (u[:, 0] * u[:, 1]) ** 2, 2, 0.0, 0.5, 2),
        ("u²v⁴", lambda u: u[:, 0] ** 2 * u[:, 1] ** 4, 2, 0.0, 0.25, 1),
        ("u⁴ + v⁶", lambda u: u[:, 0] ** 4 + u[:, 1] ** 6, 2, 0.0, 0.25 + 1 / 6, 1),
        ("u⁴, prior |u|", lambda u: u[:, 0] ** 4, 1, 1.0, 0.5, 1),
    ]
    rows: list[Row] = []
    for name, kl, dim, h, lam, m in cases:
        found = eps_scan_volume(kl, dim, prior_h=h, draws=1_000_000, seed=seed)
        rows.append({"what": "scan", "model": name, "lam": found.lam, "m": found.m, "predicted": lam, "m_predicted": m})
    gen = torch.Generator().manual_seed(seed)
    u = torch.rand(100 * size, 2, generator=gen, dtype=f64)
    for eps in (1e-2, 1e-3):
        share = float(((u[:, 0] * u[:, 1]) ** 2 < eps).double().mean())
        exact = tied_crossing_volume(eps, 1, 2)
        rows.append(
            {
                "what": "tied",
                "eps": eps,
                "measured": share,
                "predicted": exact,
                "stderr": math.sqrt(exact * (1 - exact) / len(u)),
            }
        )
    for k in (2, 3):
        level = 1e4 if k == 2 else 1e6
        high = high_curvature_volume(_mean_map(k), level, reach=0.02 if k == 2 else 0.03)
        # the constants of the paper belong to t^(k−1) dt; the Fisher density has the factor k as well
        rows.append(
            {
                "what": "high curvature",
                "k": k,
                "fisher": high[0] / k * level ** (k / (2 * (k - 1))),
                "predicted": 1 / 8 if k == 2 else 1 / (3 * 9**0.75),
            }
        )
    return rows


def _mean_map(k: int) -> Callable[[Tensor], Tensor]:
    return mean_map_metric(lambda th: torch.stack([th[0] ** k + th[1] ** 2, th[1], th[0] * th[1]]))


def curvature(size: int, seed: int) -> list[Row]:
    """Mean maps with closed forms, and the flat one that contradicts Proposition 8."""
    rows: list[Row] = []
    for k in (2, 3, 4):
        for t in (0.1, 0.3):
            measured = sectional_curvature(_mean_map(k), torch.tensor([t, 0.0], dtype=f64))
            rows.append(
                {
                    "what": "mean map",
                    "k": k,
                    "t": t,
                    "measured": measured,
                    "predicted": -1 / (k**2 * t ** (2 * (k - 1)) * (1 + t**2) ** 2),
                }
            )
    flat = mean_map_metric(lambda th: torch.stack([th[0] ** 2, th[1] * (1 + th[0])]))
    rows.append(
        {
            "what": "flat",
            "measured": sectional_curvature(flat, torch.tensor([0.05, 0.3], dtype=f64)),
            "predicted": 0.0,
        }
    )
    return rows


def trajectories(size: int, seed: int) -> list[Row]:
    """Reduced-rank regression learned by gradient descent: decaying lineages against the rank deficit (X12)."""
    rows: list[Row] = []
    d, h, o, steps = 6, 5, 6, 2 * size
    for deficit, draw in itertools.product((1, 2, 3, 4), range(3)):
        gen = torch.Generator().manual_seed(seed + draw)
        a, b = (0.1 * torch.randn(*s, generator=gen, dtype=f64) for s in ((h, d), (o, h)))
        u, v = (torch.linalg.qr(torch.randn(6, 6, generator=gen, dtype=f64))[0][:, : h - deficit] for _ in range(2))
        target = u @ torch.diag(torch.linspace(2, 1, h - deficit, dtype=f64)) @ v.T
        observations = set(np.unique(np.geomspace(200, steps, 14).astype(int)).tolist())
        losses, spectra = [], []
        for i in range(1, steps + 1):
            error = b @ a - target
            a, b = a - 0.05 * b.T @ error, b - 0.05 * error @ a.T
            if i in observations:
                product = lambda th: (th[h * d :].reshape(o, h) @ th[: h * d].reshape(h, d)).reshape(1, -1)
                f = fisher_matrix(product, torch.cat([a.flatten(), b.flatten()]))
                spectra.append(torch.linalg.eigvalsh(f).clamp_min(0).numpy())
                losses.append(float(error.square().sum()) / 2)
        axis = np.array(losses)[::-1] ** 0.25  # (loss − floor)^(1/2k), k = 2 on the ray
        slopes = [
            singular.rate_fit(axis, column[::-1], floor=1e-14).slope
            for column in np.array(spectra).T
            if column.max() > 1e-12
        ]
        rows.append(
            {
                "deficit": deficit,
                "draw": draw,
                "decaying": sum(s > 0.5 for s in slopes),
                "integer": sum(abs(s - 2) < 0.1 for s in slopes),
                "asymptotic": deficit * (d + o - 2 * h + deficit),
            }
        )
    return rows


CHECKS: dict[str, Callable[[int, int], list[Row]]] = {
    "primitive": primitive,
    "dead units": dead_units,
    "selection": selection,
    "crossings": crossings,
    "reduced rank": reduced_rank,
    "fluctuation": fluctuation,
    "volumes": volumes,
    "curvature": curvature,
    "trajectories": trajectories,
}
