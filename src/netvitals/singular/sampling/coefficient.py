"""A learning coefficient with everything that says whether to believe it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from netvitals.capture import Result, plain
from netvitals.singular.sampling.chains import ChainHealth
from netvitals.singular.sampling.hamiltonian import Tuning
from netvitals.singular.sampling.minimum import Minimum
from netvitals.singular.sampling.observables import Basin

_HOT = 0.25  # share of λ̂ beyond which what minibatches heated is refused


@dataclass(frozen=True, kw_only=True)
class LLC(Result):
    """Learning coefficient with its uncertainty and the chains behind it.

    Returned by :func:`learning_coefficient`.

    Attributes:
        mean: λ̂.
        stderr: from the autocorrelation of the loss, slow observables, and the means of half chains.
        per_chain: healthy chains only.
        trace: (chains, draws) of nβ(L − L*), diverged chains included.
        health: whether the chains mixed, and what diverged.
        well: whether they stayed in one well.
        minimum: whether they began at a minimum.
        baseline: L_n(w*), the loss where the chains began.
        n: examples.
        nbeta: inverse temperature times n.
        step_size: of a move.
        localization: strength γ of the pull back to w*.
        parameters: how many took part.
        cost: gradient-equivalents of one full pass over the data.
        acceptance: share of moves accepted.
        rungs: nβ of the ladder, from cold to hot; () on minibatches.
        heat: share of the mean that the noise of minibatches was worth, taken away where the virial can; NaN with all
            the data.
        note: what else should be known.
    """

    mean: float
    stderr: float
    per_chain: tuple[float, ...]
    trace: np.ndarray
    health: ChainHealth
    well: Basin
    minimum: Minimum
    baseline: float
    n: int
    nbeta: float
    step_size: float
    localization: float
    parameters: int
    cost: float
    acceptance: float = math.nan
    rungs: tuple[float, ...] = ()
    heat: float = math.nan
    note: str = ""
    _tuning: Tuning | None = field(default=None, repr=False, compare=False)

    @property
    def ok(self) -> bool:
        """Whether mean and standard error may be believed as those of λ at a minimum."""
        return math.isfinite(self.mean) and not self.doubts

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why not, in words."""
        found = []
        if not math.isfinite(self.mean):
            found.append("there is no estimate")
        if not self.health.ok:
            found.append(str(self.health))
        if not self.minimum.ok:
            found.append(str(self.minimum))
        if not self.well.ok:
            found.append(str(self.well))
        if abs(self.heat) > _HOT:
            found.append(f"minibatches heated the chains by {self.heat:.0%} of the mean: use larger ones")
        return tuple(found)

    def summary(self) -> dict[str, Any]:
        """The result and its health as one flat row."""
        return {
            "lambda": plain(self.mean),
            "stderr": plain(self.stderr),
            "ok": self.ok,
            "loss": self.baseline,
            "r_hat": plain(self.health.r_hat),
            "worst": self.health.worst,
            "effective_draws": self.health.effective_draws,
            "diverged": len(self.health.diverged),
            "well": plain(self.well.share),
            "below": plain(self.minimum.below),
            "gain": plain(self.minimum.gain),
            "parameters": self.parameters,
            "note": "; ".join(filter(None, (*self.doubts, self.note))),
        }

    def __str__(self) -> str:
        how = f"{len(self.rungs)} rungs" if len(self.rungs) > 1 else "one temperature" if self.rungs else "minibatches"
        lines = [
            f"λ = {self.mean:.4g} ± {self.stderr:.2g} over {self.parameters} parameters"
            f"{'' if self.ok else ', NOT to be believed'} ({len(self.per_chain)} chains × {self.trace.shape[1]} draws, "
            f"{how}, step {self.step_size:.2g}, nβ {self.nbeta:.4g})",
            f"  chains: {self.health}",
            f"  {self.well}",
            f"  {self.minimum}",
        ]
        if math.isfinite(self.heat):
            lines.append(f"  minibatches heat the chains by {self.heat:.1%} of λ, as far as the virial can tell")
        lines += [
            f"  doubt: {d}" for d in self.doubts if d not in {str(self.health), str(self.well), str(self.minimum)}
        ]
        return "\n".join([*lines, *([f"  {self.note}"] if self.note else [])])
