r"""Models with hidden states whose singular answers are known: hidden Markov models and restricted Boltzmann machines.

Observations are finite, so that a model is a vector of log-probabilities and every integral is a sum: as outputs of the
"categorical" likelihood. The truth has no hidden structure at all, and the answers follow by hand.

*Hidden Markov, two states, binary symbols.* Emissions $p_0 + m - w\delta$ and $p_0 + m + (1-w)\delta$, share w of the
second state, memory ρ: symbols at distance s covary by $w(1-w)\delta^2\rho^s$, so that
$K \asymp m^2 + \delta^4 w^2(1-w)^2\rho^2$. In a chain that starts at its own shares λ = ½ + ¼. With another first
share, off by s, the means move too: $K \asymp m^2 + \delta^2\rho^2(s^2 + \delta^2)$ has λ = ½ + ½, and m = 2 (blow up
the origin of (δ, s): $u^4 v^2$ with Jacobian u).

*Boltzmann, M visible and one hidden unit, no biases.* $E[x_i x_j] = \tanh w_i \tanh w_j$, so that
$K \asymp \sum_{i<j} w_i^2 w_j^2$: λ = min(M/4, (M − 1)/2), from the blow-up of the origin and from an axis; both for
M = 2, where m = 2.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

from netvitals.singular.laws.fluctuation import nu
from netvitals.singular.networks.zoo import Specimen
from netvitals.singular.orders.fibre import Outputs, subfamily

f64 = torch.float64


@dataclass(frozen=True)
class HiddenMarkov:
    """Two hidden states, binary symbols; θ is (m, δ, w, ρ), or (m, δ, w, ρ, s) where the start is free.

    Attributes:
        length: symbols of a sequence, at least 2.
        truth: probability p₀ of a one in the truth, whose symbols are independent.
        start: the first state has its own probability w + s.

    >>> chain = HiddenMarkov(length=3)
    >>> logp = chain.outputs(torch.tensor([0.0, 0.2, 0.3, 0.5], dtype=torch.float64))
    >>> tuple(logp.shape), round(float(logp.exp().sum()), 12)
    ((1, 8), 1.0)
    """

    length: int = 3
    truth: float = 0.4
    start: bool = False

    def __post_init__(self) -> None:
        if self.length < 2 or not 0 < self.truth < 1:
            raise ValueError(
                f"length= must be at least 2, and every probability must be positive; got {self.length} and p = "
                f"{self.truth}"
            )

    def outputs(self, theta: Tensor) -> Tensor:
        """Log-probabilities of all sequences, (1, 2^length); leading dimensions of θ replace the 1."""
        m, split, share, memory = (theta[..., i] for i in range(4))
        ones = torch.stack([self.truth + m - share * split, self.truth + m + (1 - share) * split], -1)
        up, down = share * (1 - memory), (1 - share) * (1 - memory)
        move = torch.stack([torch.stack([1 - up, up], -1), torch.stack([down, 1 - down], -1)], -2)
        first = share + theta[..., 4] if self.start else share
        begin = torch.stack([1 - first, first], -1)
        sequences = torch.tensor(list(itertools.product((0.0, 1.0), repeat=self.length)), dtype=theta.dtype)
        seen = [
            sequences[:, i, None] * ones[..., None, :] + (1 - sequences[:, i, None]) * (1 - ones[..., None, :])
            for i in range(self.length)
        ]  # (…, sequences, states)
        forward = begin[..., None, :] * seen[0]
        for emitted in seen[1:]:
            forward = (forward @ move) * emitted
        logp = forward.sum(-1).log()
        return logp[None] if theta.ndim == 1 else logp


@dataclass(frozen=True)
class Boltzmann:
    """A restricted Boltzmann machine of ±1 units without biases; θ is W (visible × hidden), by rows. Truth: W = 0.

    Attributes:
        visible: units that are seen.
        hidden: units that are not.

    >>> machine = Boltzmann(visible=2)
    >>> p = machine.outputs(torch.tensor([0.3, 0.5], dtype=torch.float64)).exp()[0]
    >>> moment = float(p[0] + p[3] - p[1] - p[2])
    >>> abs(moment - float(torch.tensor(0.3).tanh() * torch.tensor(0.5).tanh())) < 1e-6
    True
    """

    visible: int = 3
    hidden: int = 1

    def __post_init__(self) -> None:
        if self.visible < 2 or self.hidden < 1:
            raise ValueError(
                f"visible= must be at least 2 and hidden= at least 1, got {self.visible} and {self.hidden}"
            )

    @property
    def known(self) -> tuple[float, int]:
        """λ and m, where they are known by hand: one hidden unit, or two visible ones."""
        if self.hidden == 1:
            return min(self.visible / 4, (self.visible - 1) / 2), 2 if self.visible == 2 else 1
        if self.visible == 2:  # one quadratic form of full rank: its cone is smooth off the origin
            return 0.5, 1
        raise LookupError(
            f"the learning coefficient λ of a restricted Boltzmann machine with {self.visible} visible and "
            f"{self.hidden} hidden units is not known"
        )

    def outputs(self, theta: Tensor) -> Tensor:
        """Log-probabilities of all states, (1, 2^visible); leading dimensions of θ replace the 1."""
        weights = theta.reshape(*theta.shape[:-1], self.visible, self.hidden)
        states = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=self.visible)), dtype=theta.dtype)
        field = states @ weights
        free = torch.logaddexp(field, -field).sum(-1)  # log 2 cosh
        logp = free.log_softmax(-1)
        return logp[None] if theta.ndim == 1 else logp


def specimens() -> list[Specimen]:
    """Hidden-state models at a truth without hidden structure, with their exact answers."""
    chain, eye = HiddenMarkov(), torch.eye(4, dtype=f64)
    at = torch.tensor([0.0, 0.0, 0.3, 0.5], dtype=f64)  # δ = 0: share and memory are not seen
    out = [
        Specimen(
            name="hidden Markov, states split",
            outputs=chain.outputs,
            theta0=at,
            direction=eye[1],
            order=2,
            lam=0.75,
            m=1,
            nu=0.5 + nu(2),
            likelihood="categorical",
        ),
        Specimen(
            name="hidden Markov, split and memory",
            outputs=_partly(chain, at * torch.tensor([1.0, 1, 1, 0], dtype=f64), (1, 3)),
            theta0=torch.zeros(2, dtype=f64),
            direction=torch.ones(2, dtype=f64),
            order=3,
            lam=0.25,
            m=1,
            normals=tuple(torch.eye(2, dtype=f64)),
            likelihood="categorical",
            note="δ²ρ: sheets of orders 2 and 1; the mean adds ½",
        ),
        Specimen(
            name="hidden Markov, share of an equal state",
            outputs=chain.outputs,
            theta0=at,
            direction=eye[2],
            order=None,
            lam=0.75,
            m=1,
            nu=0.5 + nu(2),
            likelihood="categorical",
            note="K is zero along the direction",
        ),
    ]
    for visible in (2, 3, 4):
        machine = Boltzmann(visible)
        lam, m = machine.known
        out.append(
            Specimen(
                name=f"Boltzmann, {visible} visible, 1 hidden",
                outputs=machine.outputs,
                theta0=torch.zeros(visible, dtype=f64),
                direction=torch.arange(1, visible + 1, dtype=f64),
                order=2,
                lam=lam,
                m=m,
                normals=tuple(torch.eye(2, dtype=f64)) if visible == 2 else (),
                likelihood="categorical",
            )
        )
    out.append(
        Specimen(
            name="Boltzmann, one weight alone",
            outputs=Boltzmann(3).outputs,
            theta0=torch.zeros(3, dtype=f64),
            direction=torch.eye(3, dtype=f64)[0],
            order=None,
            lam=0.75,
            m=1,
            likelihood="categorical",
            note="a unit that is tied to nothing else: K is zero along the direction",
        )
    )
    return out


def _partly(chain: HiddenMarkov, at: Tensor, free: tuple[int, ...]) -> Outputs:
    """The subfamily in which only some of the parameters move."""
    basis = torch.eye(len(at), dtype=f64)[:, list(free)]
    return subfamily(chain.outputs, at, basis)
