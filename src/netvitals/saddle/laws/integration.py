r"""Many initial value problems at once: Runge–Kutta with a step size and events of its own for every row.

Rows of the state are independent trajectories of $\dot x = v(x)$. All rows take their stages together, as one
tensor program; each row accepts or rejects with its own step, is stopped by its own events, and leaves the batch
when it is done. The tableaus (orders 5 and 8, with their interpolants) are scipy's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from netvitals.capture import Result

Field = Callable[[Tensor, Tensor], Tensor]  # (states, their row numbers) -> velocities
Margins = Callable[[Tensor, Tensor], Tensor]  # (states, their row numbers) -> (rows, events); an event is a rise to 0

REACHED, SATURATED, OUT_OF_TIME, OUT_OF_STEPS, RUNNING = "reached", "saturated", "out of time", "out of steps", ""


@dataclass(frozen=True, kw_only=True)
class Paths(Result):
    """Trajectories of a batch. Rows that end early repeat their last state.

    Shapes: ``t`` (steps, rows), ``x`` (steps, rows, dim), ``event_t`` (rows, events) with NaN where an event never
    came, ``event_x`` (rows, events, dim), ``status`` one word per row.
    """

    t: Tensor
    x: Tensor
    event_t: Tensor
    event_x: Tensor
    status: tuple[str, ...]
    evaluations: int


class _Tableau:
    """Coefficients of a scipy method as tensors, with its error estimate and interpolant."""

    def __init__(self, method: str, like: Tensor) -> None:
        from scipy.integrate import DOP853, RK45

        cls: Any = {"dop853": DOP853, "rk45": RK45}[method]
        as_tensor = lambda a: torch.as_tensor(a, dtype=like.dtype, device=like.device)
        self.a, self.b = as_tensor(cls.A), as_tensor(cls.B)
        self.exponent = -1.0 / (cls.error_estimator_order + 1)
        self.eighth = method == "dop853"
        if self.eighth:
            self.e3, self.e5 = as_tensor(cls.E3), as_tensor(cls.E5)
            self.a_extra, self.d = as_tensor(cls.A_EXTRA), as_tensor(cls.D)
        else:
            self.e, self.p = as_tensor(cls.E), as_tensor(cls.P)

    def error(self, k: Tensor, h: Tensor, scale: Tensor) -> Tensor:
        """RMS of the scaled local error, one number per row; k is (stages, rows, dim)."""
        if not self.eighth:
            return (torch.einsum("s,srd->rd", self.e, k) * h[:, None] / scale).square().mean(1).sqrt()
        e5 = (torch.einsum("s,srd->rd", self.e5, k) / scale).square().sum(1)
        e3 = (torch.einsum("s,srd->rd", self.e3, k) / scale).square().sum(1)
        # Hairer's combination of the two embedded estimates
        return h * e5 / ((e5 + 0.01 * e3).clamp_min(1e-300) * scale.shape[1]).sqrt()

    def interpolant(self, field: Field, rows: Tensor, x: Tensor, x_new: Tensor, k: Tensor, h: Tensor) -> Tensor:
        """Coefficients (terms, rows, dim) of the step's polynomial."""
        if not self.eighth:
            return torch.einsum("sp,srd->prd", self.p, k) * h[None, :, None]
        k = torch.cat([k, k.new_zeros(3, *k.shape[1:])])
        for i, a in enumerate(self.a_extra, start=13):
            k[i] = field(x + h[:, None] * torch.einsum("s,srd->rd", a[:i], k[:i]), rows)
        dx = x_new - x
        head = [dx, h[:, None] * k[0] - dx, 2 * dx - h[:, None] * (k[12] + k[0])]
        return torch.cat([torch.stack(head), h[None, :, None] * torch.einsum("ps,srd->prd", self.d, k)])

    def at(self, terms: Tensor, x: Tensor, u: Tensor) -> Tensor:
        """State at the fraction u of the step."""
        u = u[:, None]
        if not self.eighth:
            value = torch.zeros_like(x)
            for term in terms.flip(0):
                value = (value + term) * u
            return x + value
        value = torch.zeros_like(x)
        for i, term in enumerate(terms.flip(0)):
            value = (value + term) * (u if i % 2 == 0 else 1 - u)
        return x + value


def integrate(
    field: Field,
    x0: Tensor,
    *,
    t_max: float | Tensor = float("inf"),
    rtol: float = 1e-10,
    atol: float | Tensor = 1e-14,
    events: Margins | None = None,
    method: Literal["dop853", "rk45"] = "dop853",
    max_steps: int = 20_000,
    stall: float = 0.0,
    clock: int | None = None,
    keep: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Paths:
    r"""Integrate $\dot x = v(x)$ for every row of ``x0`` until all its events came, or it stalls, or time is up.

    >>> grow = integrate(lambda x, rows: x, torch.ones(2, 1, dtype=torch.float64), events=lambda x, rows: x - 2)
    >>> [round(float(t), 9) for t in grow.event_t]
    [0.693147181, 0.693147181]
    """
    if x0.ndim != 2:
        raise ValueError(f"x0= must have shape (trajectories, dimensions), got {tuple(x0.shape)}")
    rows_total = x0.shape[0]
    tableau = _Tableau(method, x0)
    per_row = lambda v: torch.as_tensor(v, dtype=x0.dtype, device=x0.device).expand(rows_total).clone()
    t_end, floor = per_row(t_max), per_row(atol)
    rows = torch.arange(rows_total, device=x0.device)
    x, t = x0.clone(), per_row(0.0)
    v = field(x, rows)
    margin = events(x, rows) if events is not None else x.new_zeros(rows_total, 0)
    count = margin.shape[1]
    nan = torch.full_like(margin, torch.nan)
    event_t = torch.where(margin >= 0, torch.zeros_like(margin), nan)
    event_x = torch.where((margin >= 0)[..., None], x[:, None], nan[..., None])
    status = [RUNNING] * rows_total
    scale = floor[:, None] + rtol * x.abs()
    # a twentieth of the state's own time scale; from a state of zeros, a step within tolerance
    h = torch.minimum((0.05 * _rms(x / scale)).clamp_min(1.0) / _rms(v / scale).clamp_min(1e-300), t_end)
    top_speed = _speed(v, clock)
    last_t, last_x = t.clone(), x.clone()
    times, states = [t.clone()], [x.clone()]
    evaluations, grown = 1, torch.ones_like(rows, dtype=torch.bool)

    def retire(done: Tensor, word: str) -> None:
        for row in rows[done].tolist():
            status[row] = word

    if count:
        retire((margin >= 0).all(1), REACHED)
    alive = torch.tensor([word == RUNNING for word in status], device=x0.device)
    for _ in range(max_steps):
        if not bool(alive.all()):
            rows, x, t, v, h, margin, top_speed, grown = (
                a[alive] for a in (rows, x, t, v, h, margin, top_speed, grown)
            )
        if progress is not None:
            progress(rows_total - len(rows), rows_total)
        if len(rows) == 0:
            break
        h = torch.minimum(h, t_end[rows] - t)
        x_new, k = _stages(tableau, field, rows, x, v, h)
        evaluations += len(k) - 1
        scale = floor[rows, None] + rtol * torch.maximum(x.abs(), x_new.abs())
        error = torch.nan_to_num(tableau.error(k, h, scale), nan=torch.inf)
        good = error < 1
        change = (0.9 * error.clamp_min(1e-12) ** tableau.exponent).clamp(0.2, 10.0)
        # after a rejection the step may not grow at once
        change = torch.where(good & ~grown, change.clamp_max(1.0), torch.where(good, change, change.clamp_max(0.9)))
        grown = good
        hopeless = torch.zeros_like(margin, dtype=torch.bool)
        if bool(good.any()):
            margin_new = margin
            if events is not None:
                margin_new = torch.where(good[:, None], events(x_new, rows), margin)
                crossed = (margin < 0) & (margin_new >= 0) & event_t[rows].isnan()
                hit = crossed.any(1)
                if bool(hit.any()):
                    terms = tableau.interpolant(field, rows[hit], x[hit], x_new[hit], k[:, hit], h[hit])
                    where_u, where_x = _locate(tableau, terms, x[hit], events, rows[hit], crossed[hit])
                    moment = t[hit, None] + where_u * h[hit, None]
                    event_t[rows[hit]] = torch.where(crossed[hit], moment, event_t[rows[hit]])
                    event_x[rows[hit]] = torch.where(crossed[hit][..., None], where_x, event_x[rows[hit]])
            x = torch.where(good[:, None], x_new, x)
            t = torch.where(good, t + h, t)
            v = torch.where(good[:, None], k[-1], v)
            past, passed = (t, h) if clock is None else (x[:, clock], k[-1][:, clock] * h)
            ahead = margin_new + 10 * past[:, None] * (margin_new - margin) / passed[:, None]
            hopeless = (ahead < 0) | event_t[rows].isfinite()
            margin = margin_new
            top_speed = torch.maximum(top_speed, _speed(v, clock))
        h = h * change
        last_t[rows], last_x[rows] = t, x
        if keep:
            times.append(last_t.clone())
            states.append(last_x.clone())
        finished = event_t[rows].isfinite().all(1) if count else torch.zeros_like(good)
        stalled = torch.zeros_like(good)
        if stall:
            stalled = good & ~finished & (_speed(v, clock) <= stall * top_speed) & hopeless.all(1)
        late = ~finished & ~stalled & (t >= t_end[rows])
        stuck = ~finished & ~stalled & ~late & (h <= 1e-15 * t)
        retire(finished, REACHED)
        retire(stalled, SATURATED)
        retire(late, OUT_OF_TIME)
        retire(stuck, OUT_OF_STEPS)
        alive = ~(finished | stalled | late | stuck)
    else:
        retire(alive, OUT_OF_STEPS)
    if not keep:
        times.append(last_t)
        states.append(last_x)
    return Paths(
        t=torch.stack(times),
        x=torch.stack(states),
        event_t=event_t,
        event_x=event_x,
        status=tuple(status),
        evaluations=evaluations,
    )


def _stages(tableau: _Tableau, field: Field, rows: Tensor, x: Tensor, v: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    stages = len(tableau.b)
    k = x.new_empty(stages + 1, *x.shape)
    k[0] = v
    for i in range(1, stages):
        k[i] = field(x + h[:, None] * torch.einsum("s,srd->rd", tableau.a[i, :i], k[:i]), rows)
    x_new = x + h[:, None] * torch.einsum("s,srd->rd", tableau.b, k[:stages])
    k[stages] = field(x_new, rows)
    return x_new, k


def _locate(
    tableau: _Tableau, terms: Tensor, x: Tensor, events: Margins, rows: Tensor, crossed: Tensor
) -> tuple[Tensor, Tensor]:
    """Fractions of the step at which the crossed margins vanish, by regula falsi (Illinois) with all rows at once."""
    count = crossed.shape[1]
    fraction = x.new_ones(len(x), count)
    place = x[:, None].expand(-1, count, -1).clone()
    for e in range(count):
        if not bool(crossed[:, e].any()):
            continue
        low, high = x.new_zeros(len(x)), x.new_ones(len(x))
        f_low, f_high = events(x, rows)[:, e], events(tableau.at(terms, x, high), rows)[:, e]
        u, side = high, torch.zeros_like(rows)
        for _ in range(60):
            spread = f_high - f_low
            u = torch.where(spread.abs() > 0, high - f_high * (high - low) / spread, (low + high) / 2)
            u = u.clamp(torch.zeros_like(u), torch.ones_like(u))
            f = events(tableau.at(terms, x, u), rows)[:, e]
            right = f >= 0
            again = side == torch.where(right, 1, -1)  # the same end moved twice: halve the value at the other
            f_low, f_high = (
                torch.where(right, torch.where(again, f_low / 2, f_low), f),
                torch.where(right, f, torch.where(again, f_high / 2, f_high)),
            )
            side = torch.where(right, 1, -1)
            low, high = torch.where(right, low, u), torch.where(right, u, high)
            if bool(((f.abs() < 1e-15) | (high - low < 1e-14) | ~crossed[:, e]).all()):
                break
        fraction[:, e] = u
        place[:, e] = tableau.at(terms, x, u)
    return fraction, place


def _speed(v: Tensor, clock: int | None) -> Tensor:
    if clock is None:
        return _rms(v)
    others = [i for i in range(v.shape[1]) if i != clock % v.shape[1]]
    return _rms(v[:, others]) / v[:, clock].abs().clamp_min(1e-300)


def _rms(a: Tensor) -> Tensor:
    return a.square().mean(1).sqrt()
