r"""Crossings of a product: a unit with incoming weights a and outgoing weights c, $f = c\,\varphi(a x)$ near a = c = 0.

The model must not change while either side is zero, and must change in proportion to each side. If then no pair of
directions (a, c) leaves it as it is, $K \asymp \|a\|^2 \|c\|^2$ and $\lambda = \min(\dim a, \dim c)/2$, with m = 2 for
a tie; directions along which nothing ever changes are taken out first. With $M(a)c$ the change, linear in c:

- where M is linear in a too, the pair with the smallest $\|M(a)c\|$ is looked for (dead-directions Theorem 89);
- where an activation has a kink, M must be one number $\varphi(x_i \cdot a)$ a sample times a fixed map. A zero pair is
  then an a that every sample shuts, a linear programme. If a cone of them is open, nothing changes there: λ = 0.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from netvitals.singular.orders.jacobian import Outputs, derivative, whitened
from netvitals.singular.orders.neighbourhood import MOST_PARAMETERS, LocalCoefficient
from netvitals.singular.orders.quadratic import smallest_pair

_DRAWS = 6  # rays on which proportions are checked
_SIZES = (1e-2, 1e-3, 1e-4)  # of each side on them: the largest at which what follows does not bend
_LINEAR = 0.02  # relative deviation that is still called linear
_NOTHING = 1e-6  # relative change, or singular value, that counts as none
_PAIR = 1e-4  # of the largest ‖M(a)c‖, below which a pair counts as a zero
_ENTRIES = 20_000_000  # of the second derivative

Change = Callable[[Tensor, Tensor], Tensor]


def product_crossing(outputs: Outputs, theta0: Tensor, first: Tensor, likelihood: str = "gaussian") -> LocalCoefficient:
    r"""λ and m where two groups of parameters vanish together, both zero at ``theta0``.

    >>> x = torch.linspace(-1, 1, 9, dtype=torch.float64)[:, None]
    >>> unit = lambda th: th[0] * torch.relu(th[1] * x)
    >>> found = product_crossing(unit, torch.zeros(2, dtype=torch.float64), torch.tensor([False, True]))
    >>> found.lam, found.m, found.sheets
    (0.5, 2, (1, 1))
    """
    count = theta0.numel()
    why = lambda text: LocalCoefficient(
        lam=None, m=None, nu=None, parameters=count, rank=0, fibre=0, singular=count, why=text
    )
    if count > MOST_PARAMETERS:
        return why(f"the unit has {count:,} weights and ranks are followed up to {MOST_PARAMETERS:,}")
    theta0 = theta0.detach().double()
    g, scores = whitened(outputs, theta0, likelihood)
    sizes = int(first.sum()), count - int(first.sum())
    if scores <= max(sizes):
        return why(f"{max(sizes)} directions and only {scores} scores: give more examples")
    if sizes[0] * sizes[1] * g(theta0).numel() > _ENTRIES:
        return why(f"{sizes[0]} × {sizes[1]} pairs of directions on {scores:,} scores are more than are followed")
    eye = torch.eye(count, dtype=torch.float64)
    before, behind = eye[:, first], eye[:, ~first]
    change: Change = lambda a, c: g(theta0 + before @ a + behind @ c)
    through = lambda a: derivative(g, theta0 + before @ a, behind)  # M(a), (scores, dim c)
    gen = torch.Generator().manual_seed(0)
    units = [[_unit(torch.randn(s, generator=gen, dtype=torch.float64)) for s in sizes] for _ in range(_DRAWS)]
    text = ""
    for size in _SIZES:
        draws = [(size * a, size * c) for a, c in units]
        if not (text := _no_product(change, draws)):
            break
    else:
        return why(text)
    ends = [(through(size * e), through(-size * e)) for e in torch.eye(sizes[0], dtype=torch.float64)]
    cross = torch.stack([(one - two).T for one, two in ends]) / (2 * size)  # (dim a, dim c, scores)
    smooth = all(_bends(through, cross, a) for a, _ in draws)
    if smooth:
        live = _live(cross.flatten(1)), _live(cross.transpose(0, 1).flatten(1))
    else:
        kinks = torch.stack([_slopes(change, a, c) for a, c in draws] + [_slopes(change, -a, c) for a, c in draws])
        live = _live(kinks.flatten(0, 1).T), _live(torch.cat([through(s * a) for a, _ in draws for s in (1, -1)]).T)
    if not _rest_is_idle(change, draws, live):
        return why("some of its weights change the model at a higher order only")
    codimensions = live[0].shape[1], live[1].shape[1]
    if smooth:
        inside = torch.einsum("acq,ai,cj->ijq", cross, *live)
        if smallest_pair(inside) <= _PAIR * float(inside.norm(dim=2).max()):
            return why("both sides can move together without a change: its sheets are more than two")
    else:
        open_cone = _shut(change, through, draws, live, len(outputs(theta0)))
        if isinstance(open_cone, str):
            return why(open_cone)
        if open_cone:
            return LocalCoefficient(
                lam=0.0, m=1, nu=0.0, parameters=count, rank=0, fibre=0, singular=count, open_cone=True
            )
    return LocalCoefficient(
        lam=min(codimensions) / 2,
        m=2 if codimensions[0] == codimensions[1] else 1,
        nu=None,
        parameters=count,
        rank=0,
        fibre=count - sum(codimensions),
        singular=sum(codimensions),
        sheets=codimensions,
    )


def _no_product(change: Change, draws: list[tuple[Tensor, Tensor]]) -> str:
    """Why the change is not in proportion to each side; "" where it is."""
    for (a, c), (_, other) in zip(draws, draws[1:] + draws[:1]):
        whole = change(a, c)
        size = float(whole.norm())
        if max(float(change(a, 0 * c).norm()), float(change(0 * a, c).norm())) > _NOTHING * size:
            return "the model changes already while one side of the unit is zero"
        for half in (change(a / 2, c), change(a, c / 2)):
            if abs(float(half.norm()) - size / 2) > _LINEAR * size:
                return "the divergence does not grow with the square of each side"
        if not _near(change(a, other) + whole, change(a, other + c)):
            return "the model is not linear in what lies behind the unit"
    return ""


def _bends(through: Callable[[Tensor], Tensor], cross: Tensor, a: Tensor) -> bool:
    """Whether M is linear in a near 0: an even part that shrinks with a is a bend, one that keeps its share a kink."""
    shares = []
    for size in (1.0, 0.5):
        one, two = through(size * a), through(-size * a)
        odd = (one - two) / 2
        shares.append(float((one + two).norm() / 2) / max(float(odd.norm()), 1e-300))
    linear = _near(torch.einsum("acq,a->qc", cross, a) / 2, odd)
    return linear and (shares[0] <= _LINEAR or shares[1] <= 0.75 * shares[0])


def _rest_is_idle(change: Change, draws: list[tuple[Tensor, Tensor]], live: tuple[Tensor, Tensor]) -> bool:
    """Whether what was taken out of both sides changes nothing however far it moves, beside a live pair too."""
    if all(basis.shape[0] == basis.shape[1] for basis in live):
        return True
    gen = torch.Generator().manual_seed(1)
    for a, c in draws[:3]:
        moves = []
        for part, basis in ((a, live[0]), (c, live[1])):
            v = torch.randn(len(part), generator=gen, dtype=torch.float64)
            moves.append(v - basis @ (basis.T @ v))
        whole = change(a, c)
        idle = change(a + moves[0], c + moves[1])
        if not _near(idle, whole):
            return False
    return True


def _slopes(change: Change, a: Tensor, c: Tensor) -> Tensor:
    """∂/∂a of the change at a pair, (scores, dim a)."""
    return derivative(lambda at: change(at, c), a, torch.eye(len(a), dtype=torch.float64))


def _shut(
    change: Change,
    through: Callable[[Tensor], Tensor],
    draws: list[tuple[Tensor, Tensor]],
    live: tuple[Tensor, Tensor],
    samples: int,
) -> bool | str:
    """Whether an open cone of a is shut on every sample; False: no a is; a reason where neither is certain."""
    vague = "an activation has a kink, and what passes it is more than one number a sample"
    maps = torch.stack([through(s * a) for a, _ in draws for s in (1, -1)]) @ live[1]
    maps = maps.reshape(len(maps), samples, -1, live[1].shape[1]).flatten(2)  # (draws, samples, scores · dim c)
    _, values, right = torch.linalg.svd(maps.transpose(0, 1), full_matrices=False)
    if bool((values[:, 1:] > 1e-6 * values.max()).any()):
        return vague
    blocks = right[:, 0].reshape(samples, -1, live[1].shape[1])
    seen = values[:, 0] > 1e-9 * values.max()
    least = torch.linalg.svdvals(blocks[seen])
    if least.shape[1] < live[1].shape[1] or bool((least[:, -1] <= _PAIR * least[:, 0]).any()):
        return vague
    passed = (maps * right[:, 0]).sum(-1)[:, seen]  # φ(xᵢ · a) of every draw, up to a sign a sample
    # the rows xᵢ: slopes of φ(xᵢ · a) on its open side
    axes = torch.eye(len(draws[0][0]), dtype=torch.float64)
    steep = []
    for (a, _), s in ((d, s) for d in draws for s in (1, -1)):
        there = lambda at: ((through(at) @ live[1]).reshape(samples, -1) * right[:, 0]).sum(-1)[seen]
        steep.append(derivative(there, s * a, axes))
    slopes = torch.stack(steep, 1) @ live[0]  # (samples, draws, dim a)
    _, spread, rows = torch.linalg.svd(slopes, full_matrices=False)
    if bool((spread[:, 1:] > 1e-6 * spread.max()).any()):
        return vague
    rows = rows[:, 0]
    along = torch.stack([rows @ (live[0].T @ (s * a)) for a, _ in draws for s in (1, -1)])  # xᵢ · a
    level = passed.abs() > 1e-9 * passed.abs().max()
    opens = torch.stack([(level & (along > 0)).any(0), (level & (along < 0)).any(0)])
    return _cone(rows.numpy(), opens.numpy())


def _cone(rows: np.ndarray, opens: np.ndarray) -> bool | str:
    """Whether {a: xᵢ · a on a shut side, for every i} is open; False where it is only 0."""
    from scipy.optimize import linprog

    signed = np.concatenate([rows[opens[0]], -rows[opens[1]]])  # signed · a ≤ 0
    size = rows.shape[1]
    box = [(-1.0, 1.0)] * size
    inner = linprog(
        np.append(np.zeros(size), -1.0),
        A_ub=np.column_stack([signed, np.ones(len(signed))]),
        b_ub=np.zeros(len(signed)),
        bounds=[*box, (None, 1.0)],
    )
    if inner.status == 0 and -inner.fun > 1e-9:
        return True
    for sign in (1.0, -1.0):
        for k in range(size):
            goal = np.zeros(size)
            goal[k] = sign
            found = linprog(goal, A_ub=signed, b_ub=np.zeros(len(signed)), bounds=box)
            if found.status != 0 or -found.fun > 1e-7:
                return "some of its incoming weights are shut on every sample, but no open cone of them"
    return False


def _live(rows: Tensor) -> Tensor:
    """An orthonormal basis of what the columns of ``rows`` span, (len(rows), rank)."""
    left, values, _ = torch.linalg.svd(rows, full_matrices=False)
    return left[:, : int((values > _NOTHING * values[0]).sum())]


def _near(one: Tensor, two: Tensor) -> bool:
    return float((one - two).norm()) <= _LINEAR * float(two.norm())


def _unit(v: Tensor) -> Tensor:
    return v / v.norm()
