"""Checks of the escape laws, on and off the symmetric manifold, and of several modes: numbers, not verdicts."""

from __future__ import annotations

import math

import numpy as np
import torch

from netvitals import saddle
from netvitals.saddle.laws.chain import ScalarChain
from netvitals.saddle.laws.escape import balanced, next_to_leading
from netvitals.saddle.measure import signal as signal_measures
from netvitals.saddle.measure.bottlenecks import positional_drive
from netvitals.saddle.measure.signal import stack_signal
from netvitals.saddle.students.network import gradients
from netvitals.saddle.students.task import aligned_sample, antithetic_sample
from netvitals.saddle.students.trajectories import flow
from netvitals_lab.theory.saddle import perron_modes
from netvitals_lab.theory.saddle.blocks import BlockChain
from netvitals_lab.theory.saddle.closures import off_block
from netvitals_lab.theory.saddle.perron_modes import graded_example, stage_matrix
from netvitals_lab.theory.saddle.perturbation import expansion
from netvitals_lab.theory.saddle.stages import stage_law

Numbers = dict[str, float]


def resonance(seed: int) -> Numbers:
    """T9: slope of K t − ε^{−(L−2)}/(L−2) against ln(1/ε) at L = q + 1, beside the corrected and the printed λ."""
    out: Numbers = {}
    for name, depth in (("tanh", 4), ("sin", 4), ("erf", 4), ("gelu", 3), ("silu", 3)):
        d = saddle.drive(name, depth, 1)
        eps = np.array([2e-4, 1e-3])
        starts = np.repeat(eps[:, None], depth, 1)
        t = saddle.reduced_flow(starts, name, 1, threshold=0.1, rtol=1e-11, keep=False).escape_t
        rest = d.k * np.asarray(t) - eps ** -(depth - 2.0) / (depth - 2)
        out[f"{name} slope"] = float(np.diff(rest)[0] / np.diff(np.log(1 / eps))[0])
        out[f"{name} corrected"], out[f"{name} printed"] = -d.lam, -d.lam_prime
    return out


def corrections(seed: int) -> Numbers:
    """NLO coefficients above the resonance, order of the correction below it, class-C coefficient of a layer."""
    from netvitals.activations import constants

    out: Numbers = {}
    for name, depth, eps in (("tanh", 6, 0.01), ("gelu", 5, 0.003), ("silu", 6, 0.003)):
        d = saddle.drive(name, depth, 64)
        base = balanced(eps, depth, d.k, 0.3)
        t = saddle.reduced_flow([eps] * depth, name, 64, threshold=0.3, rtol=1e-12, keep=False).escape_t
        out[f"{name} measured"] = (float(t) / base - 1) / eps ** (d.q - 1)
        out[f"{name} formula"] = (next_to_leading(eps, d, 0.3) / base - 1) / eps ** (d.q - 1)
    small = np.array([1e-3, 2e-3, 4e-3])
    k = saddle.drive("tanh", 3, 64).k
    t3 = np.asarray(saddle.escape_time(np.repeat(small[:, None], 3, 1), "tanh", 64).t)
    out["order below resonance"] = saddle.fit_exponent(small, np.abs(t3 * k * small - 1)).slope
    chain, exp, s = ScalarChain("gelu", 64), expansion("gelu", 4, 64), 1e-3
    x = torch.full((4,), s, dtype=torch.float64)
    relative = (chain.velocity(x) / exp.leading(x) - 1) / s
    out["gelu layer 1"], out["gelu layer 2"] = float(relative[0]), float(relative[1])
    out["gelu printed"] = constants("gelu").gamma_printed
    return out


def critical_depth(seed: int) -> Numbers:
    """T10, T11: exponent and prefactor by r, with the small layers first or last; depth does not matter."""
    out: Numbers = {}
    necks = [(r, eps) for r in (1, 2, 3, 4) for eps in (1e-3, 1e-4)]
    starts = np.array([[eps] * r + [0.8] * (6 - r) for r, eps in necks])
    for last in (False, True):
        found = saddle.escape_time(starts[:, ::-1].copy() if last else starts, "tanh", 1, layer=5 if last else 0).t
        times = dict(zip(necks, np.asarray(found).tolist()))
        where = "last" if last else "first"
        if not last:
            out["r1 time"], out["r1 change"] = times[1, 1e-3], abs(times[1, 1e-4] / times[1, 1e-3] - 1)
        for r in (2, 3, 4):
            t = [times[r, 1e-3], times[r, 1e-4]]
            x0 = np.array([1e-3] * r + [0.8] * (6 - r))
            k = positional_drive(x0[::-1] if last else x0, range(6 - r, 6) if last else range(r), "tanh", 1)
            if r == 2:
                out[f"r2 {where} log rate"] = (t[1] - t[0]) / math.log(10) * k
            else:
                out[f"r{r} {where} exponent"] = math.log(t[0] / t[1]) / math.log(10)
                out[f"r{r} {where} prefactor"] = t[1] * (r - 2) * k * 1e-4 ** (r - 2)
            out[f"r{r} position ratio"] = saddle.drive("tanh", 6, 1).k * 0.8 ** (6 - r) / k if last else 1.0
    for depth in (4, 5, 7):
        two = np.array([[e] * 3 + [0.8] * (depth - 3) for e in (1e-3, 2e-3)])
        pair = np.asarray(saddle.escape_time(two, "tanh", 1).t)
        out[f"depth {depth} r3 exponent"] = math.log(pair[0] / pair[1]) / math.log(0.5)
    out["shell edge"] = _shell_edge()
    return out


def _shell_edge() -> float:
    """T12: relative error of Y^{−j/2}/Π s_i at the edge Y = s_j² of a shell, scales a factor 100 apart."""
    s = np.array([1e-6, 1e-4, 1e-2, 1.0])
    gaps = s**2 - s[0] ** 2
    y = s[1] ** 2
    exact = 1 / math.sqrt(y * float(np.prod(y + gaps[1:])))
    return exact / (y ** (-2 / 2) / (s[2] * s[3])) - 1


def signal(seed: int) -> Numbers:
    """T15–T18, T21: signal energy at He initialisation and along a trajectory."""
    task = saddle.teacher("tanh", 8)
    sample = aligned_sample(task.directions[0], 48)
    make = lambda eps, depth=4: saddle.he_stack(depth, 32, 8, small=3, eps=eps, seeds=[seed], dtype=torch.float64)
    histories = {eps: stack_signal(make(eps), task, sample, 3) for eps in (0.03, 0.01)}
    gap = {e: abs(float(s.teacher_term / (s.beta * s.h * s.energy)) - 1) for e, s in histories.items()}
    rank = {e: float(s.rank_one.max()) for e, s in histories.items()}
    tiny = stack_signal(make(0.003), task, sample, 3)
    out = {
        "drive gap": gap[0.01],
        "drive gap order": math.log(gap[0.03] / gap[0.01]) / math.log(3),
        "rank-one residual": rank[0.01],
        "rank-one order": math.log(rank[0.03] / rank[0.01]) / math.log(3),
        "gamma over path": float(tiny.gamma / tiny.linear_gain),
        "h": tiny.h,
        "output over gamma": float(tiny.output_norm / tiny.gamma.abs()),
    }
    stack = make(0.02, 5)
    run = flow(stack, task, sample, thresholds=(0.15,), keep=True)
    steps = range(0, run.paths.t.shape[0], max(1, run.paths.t.shape[0] // 25))
    ratio, self_ratio, floor, drift = [], [], [], []
    for i in steps:
        now = run.weights(i)
        s = stack_signal(now, task, sample, 3)
        if float(s.scale[0]) <= 0.4 and float(s.gamma[0]) > 1e-6:
            ratio.append(float(s.drive_ratio[0]))
            self_ratio.append(abs(float(s.self_ratio[0])))
            floor.append(float(s.am_gm[0]))
            drift.append(max(float((now[k] - stack[k]).norm()) for k in (3, 4)) / float(s.scale[0]) ** 2)
    return {
        **out,
        "points": float(len(ratio)),
        "least drive ratio": min(ratio),
        "largest self ratio": max(self_ratio),
        "least am-gm": min(floor),
        "largest drift over M^2": max(drift),
    }


def nondegeneracy(seed: int) -> Numbers:
    """T27, claim 32: density of the linear path at 0 over 2,000 seeds; a unit Gaussian has 0.399."""
    stack = saddle.he_stack(4, 32, 8, small=3, eps=0.1, seeds=range(seed * 2000, seed * 2000 + 2000))
    found = signal_measures.nondegeneracy(stack, saddle.teacher("tanh", 8).directions[0])
    density, error = found.density_at_zero()
    norms = torch.stack([torch.linalg.matrix_norm(w, 2) for w in stack[1:3]]) / 0.1
    return {
        "density": density,
        "density error": error,
        "positive": found.positive,
        "smallest norm": float(norms.min()),
        "largest norm": float(norms.max()),
    }


def corners(seed: int) -> Numbers:
    """T20: at He initialisation r = 1 is Θ(1) and r = 2 logarithmic, by adaptive flow."""
    task, sample = saddle.teacher("tanh", 8), antithetic_sample(256, 8)
    eps = [0.01, 0.003, 0.001]
    out: Numbers = {}
    for r in (1, 2):
        stack = saddle.he_stack(4, 32, 8, small=r, eps=eps, seeds=[seed], dtype=torch.float64)
        t = flow(stack, task, sample, thresholds=(0.05,)).escape[:, 0]
        if r == 1:
            out["r1 change"] = float(abs(t[2] / t[1] - 1))
        else:
            rates = np.diff(t) / np.diff(np.log(1 / np.array(eps)))
            out["r2 rate change"] = float(abs(rates[1] / rates[0] - 1))
    return out


def stages(seed: int) -> Numbers:
    """T26, claims 33 and 34: the stage law on single chains, and a weaker mode that escapes first."""
    out: Numbers = {}
    for depth in (2, 3, 4, 5):
        law = stage_law("tanh", depth, 1, [1.0], [0.01], theta=3.0)
        t = saddle.reduced_flow([0.0] + [0.01] * (depth - 1), "tanh", 1, threshold=0.03, keep=False).escape_t
        out[f"depth {depth} time over law"] = float(t) / law.times[0]
    strong = float(saddle.escape_time([0.01] * 4, "tanh", 64, beta=1.0, threshold=0.1))
    weak = float(saddle.escape_time([0.01] * 3 + [1.0], "tanh", 64, beta=0.3, threshold=0.1))
    ranked = stage_law("tanh", 4, 64, [1.0, 0.3, 0.08], [0.02, 0.02, 0.02])
    return {
        **out,
        "weak over strong": weak / strong,
        "ranked": float(ranked.order == (0, 1, 2)),
        "ratio 2 over 1": ranked.ratio(1, 0),
    }


def blocks(seed: int) -> Numbers:
    """Claim 35: velocities off and on the diagonal blocks; the reduction against the full network."""
    from netvitals.activations import gauss_hermite

    chain = BlockChain("tanh", (1.0, 0.3, 0.08), 4, 20, nodes=10)
    found = off_block(chain, chain.aligned(0.05))
    generator = torch.Generator().manual_seed(seed)
    theta = chain.aligned(0.05) + 0.01 * torch.randn(chain.size, generator=generator, dtype=torch.float64)
    directions = torch.eye(16, dtype=torch.float64)[:3]
    z, w = gauss_hermite(10, dim=3)
    task = saddle.Teacher(chain.f, directions, chain.betas)
    x = z @ directions
    grads, _ = gradients(chain.embed(theta, directions), x, task.target(x), task.f, w)
    reduced = chain.reduce([-20 * grads[0], *(-g for g in grads[1:])], directions)[0]
    jacobian = chain.jacobian(theta)
    return {
        "off over on": found.ratio,
        "leading gap": float(np.abs(found.exact / found.leading - 1).max()),
        "printed over exact": float(np.abs(found.printed_coupling).max() / np.abs(found.exact_coupling).max()),
        "reduction gap": float((reduced - chain.velocity(theta)).abs().max()),
        "scalars": float(chain.size),
        "jacobian gap": float((jacobian + torch.autograd.functional.hessian(chain.loss, theta)).abs().max()),
    }


def perron(seed: int) -> Numbers:
    """T23: random matrices; violations of the equivalence, and leading eigenvalues that are not real."""
    rng = np.random.default_rng(seed)
    violations = complex_leads = unstable = 0
    worst = 0.0
    for _ in range(2000):
        n, m = rng.integers(1, 6, 2)
        a, d = rng.uniform(0.1, 2, n), rng.uniform(0.1, 2, m)
        b = rng.uniform(0, 1.5, (n, m)) * (rng.random((n, m)) < 0.7)
        c = rng.uniform(0, 1.5, (m, n)) * (rng.random((m, n)) < 0.7)
        found = perron_modes.perron(a, b, c, d)
        values = np.linalg.eigvals(stage_matrix(a, b, c, d))
        lead = values[np.argmax(values.real)]
        violations += found.unstable != (lead.real > 1e-12)
        unstable += found.unstable
        if found.unstable:
            complex_leads += abs(lead.imag) > 1e-9
            worst = max(worst, abs(found.rate - lead.real))
    hole = perron_modes.perron([1, 1], [[1, 1], [0, 0]], [[3, 0], [3, 0]], [1, 1])
    return {
        "cases": 2000.0,
        "violations": float(violations),
        "complex leads": float(complex_leads),
        "unstable": float(unstable),
        "rate gap": worst,
        "vector with a hole": float(not hole.strictly_positive),
    }


def stage_one(seed: int) -> Numbers:
    """Prop. 24's hypotheses at the balanced saddle of three tanh modes, at ε and ε/2: sizes, and who grows."""
    found, order = {}, {}
    for eps in (0.05, 0.025):
        chain = BlockChain("tanh", (1.0, 0.3, 0.08), 4, 20, nodes=16)
        parts = chain.channels()
        x, eta = (np.flatnonzero(parts[name].numpy()) for name in ("on-block", "rotations"))
        jacobian = chain.jacobian(chain.aligned(eps)).numpy()
        found[eps] = perron_modes.block_growth(jacobian, x, eta)
        order[eps] = (float(-np.diag(jacobian)[x].min()), found[eps].violated.get("A is not diagonal", 0.0))
    at, half = found[0.05], found[0.025]
    return {
        "diagonal of A": order[0.05][0],
        "off its diagonal": order[0.05][1],
        "least of B": -at.violated.get("B has negative entries", 0.0),
        "order of the diagonal": float(np.log2(order[0.05][0] / order[0.025][0])),
        "order off the diagonal": float(np.log2(order[0.05][1] / order[0.025][1])),
        "own rate": at.own,
        "rate": at.rate,
        "order of the rate": float(np.log2(at.rate / half.rate)),
    }


def truncations(seed: int) -> Numbers:
    """T24, T25: rates of truncated hierarchies rise strictly; small truncations may have none."""
    a, b, c, d = graded_example(10)
    cut, weak = perron_modes.truncations(a, b, c, d), perron_modes.truncations(a, 0.6 * b, c, d)
    times = cut.times(0.01)
    return {
        "strictly increasing": float(cut.strictly_increasing),
        "last rate": cut.rates[-1],
        "first over last time": times[0] / times[-1],
        "smallest growing truncation": float(weak.first or 0),
    }
