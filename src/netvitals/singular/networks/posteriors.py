r"""Posteriors whose $n\beta\,E[L - L^*]$ is known at finite nβ: what the learning coefficient is held against.

The losses are $L = \frac12 \overline{\|f(x, w) - f(x, w^*)\|^2}$, the posteriors
$\exp(-n\beta L - \frac{\gamma}{2}\|w - w^*\|^2)$. Monomials are integrals over sums of logarithms, a convolution; where
the last layer is linear it is integrated in closed form and the rest, of one or two dimensions, on a grid; deep linear
networks at rank zero are integrals over two singular values; the others are λ of Aoyagi's formula at a large nβ.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from netvitals.singular.laws.rlct import rlct_deep_linear

f64 = torch.float64


@dataclass(frozen=True)
class Posterior:
    """A model at w*, its data, and the exact answer."""

    name: str
    model: nn.Module
    x: Tensor
    nbeta: float
    exact: float  # nβ E[L − L*]
    gamma: float = 1.0
    source: str = "quadrature"
    noise: Tensor | float = 0.0  # what targets have beside f(x, w*)
    batch_size: int | None = None  # for chains on minibatches

    @property
    def batch(self) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            return self.x, self.model(self.x) + self.noise


def half_square(outputs: Tensor, targets: Tensor) -> Tensor:
    """½ ‖f − y‖² of ``outputs`` and ``targets``, averaged over examples."""
    return 0.5 * (outputs - targets).square().sum(1).mean()


class Monomials(nn.Module):
    """Outputs $x \\prod_i u_i^{p_i}$, one for each row of powers, at u = 0; u is w turned by an orthogonal matrix."""

    turn: Tensor

    def __init__(self, *powers: Sequence[int], turn: Tensor | None = None) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(len(powers[0]), dtype=f64))
        self.powers = powers
        self.register_buffer("turn", torch.eye(len(powers[0]), dtype=f64) if turn is None else turn)

    def forward(self, x: Tensor) -> Tensor:
        u = self.turn @ self.w
        terms = [math.prod((u[i] ** p for i, p in enumerate(row) if p), start=x.new_ones(())) for row in self.powers]
        return x * torch.stack(terms)


def of_monomial(
    powers: Sequence[int], nbeta: float, gamma: float = 1.0, *, dimensions: Sequence[int] | None = None
) -> float:
    """For f = Π uᵢ^pᵢ with ``powers`` p at 0, at ``nbeta`` with a pull ``gamma``: log|f| is a sum of independent terms,
    its density a convolution of theirs. With ``dimensions`` uᵢ is the length of a vector with so many entries.

    >>> round(of_monomial([4], 1e6), 4), round(of_monomial([1], 100.0), 4)  # 1/8 in the limit; ½ · 100/101
    (0.1235, 0.495)
    """
    from scipy.signal import fftconvolve

    h, low = 0.01, -90.0
    u = np.arange(low, 12.0, h)
    density = None
    for p, d in zip(powers, dimensions or [1] * len(powers), strict=True):
        a = np.exp(u / p)
        term = np.exp(-gamma * a * a / 2 + d * u / p)
        density = term if density is None else fftconvolve(density, term) * h
    assert density is not None
    t = low * len(powers) + h * np.arange(len(density))
    energy = nbeta / 2 * np.exp(2 * np.clip(t, -300, 100))
    weight = np.clip(density, 0, None) * np.exp(-energy)
    return float((energy * weight).sum() / weight.sum())


def of_linear_chain(widths: Sequence[int], nbeta: float, gamma: float = 1.0) -> float:
    r"""For linear layers of these ``widths`` at zero, one hidden width being 1, at ``nbeta`` with a pull ``gamma``.

    A matrix of normal entries turns a vector v into one of independent entries of size |v|, so that the norm of the
    product is a product of independent lengths: one in the dimension of every other width.

    >>> round(of_linear_chain([4, 1, 3], 1e4), 4) == round(of_linear_product(4, 1, 3, 1e4), 4)
    True
    """
    if 1 not in widths[1:-1]:
        raise ValueError(f"one of the hidden widths must be 1, got {list(widths)}")
    at = 1 + list(widths[1:-1]).index(1)
    others = [*widths[:at], *widths[at + 1 :]]
    return of_monomial([1] * len(others), nbeta, gamma, dimensions=others)


def of_linear_draws(widths: Sequence[int], nbeta: float, gamma: float = 1.0, draws: int = 4_000_000) -> float:
    r"""For linear layers of these ``widths`` at zero, at ``nbeta`` with a pull ``gamma``: the last layer is integrated
    out, the others are drawn from the well ``draws`` times and weighted; right to 0.4 % where λ is below 1.5.

    >>> found = of_linear_draws([2, 2, 2], 10.0, draws=100_000)
    >>> bool(abs(found / of_linear_product(2, 2, 2, 10.0) - 1) < 0.01)
    True
    """
    rng = np.random.default_rng(0)
    total = weighted = 0.0
    for _ in range(max(1, draws // 100_000)):
        product = np.eye(widths[0])[None]
        for before, after in itertools.pairwise(widths[:-1]):
            product = rng.normal(size=(100_000, after, before)) / math.sqrt(gamma) @ product
        gram = (
            product @ product.transpose(0, 2, 1)
            if product.shape[1] <= widths[0]
            else product.transpose(0, 2, 1) @ product
        )
        scaled = nbeta / gamma * np.linalg.eigvalsh(gram).clip(0)
        weight = np.exp(-widths[-1] / 2 * np.log1p(scaled).sum(1))
        total += weight.sum()
        weighted += (weight * (scaled / (1 + scaled)).sum(1)).sum() * widths[-1] / 2
    return float(weighted / total)


def of_linear_product(n_in: int, hidden: int, n_out: int, nbeta: float, gamma: float = 1.0) -> float:
    r"""For y = BAx from ``n_in`` over ``hidden`` to ``n_out`` at A = B = 0 and whitened x, at ``nbeta`` with a pull
    ``gamma``: B is integrated out, the squared singular values of A are Wishart's.

    >>> round(of_linear_product(1, 1, 1, 2e5), 3) == round(of_monomial([1, 1], 2e5), 3)
    True
    """
    small, large = sorted((n_in, hidden))
    if small > 2:
        raise ValueError(f"the grid integration works only with at most two small singular values, got {small}")
    u = np.linspace(-45.0, 6.0, 1500)  # logarithms of the squared singular values
    values = np.exp(u)
    log_density = ((large - small - 1) / 2 + 1) * u - gamma * values / 2
    scaled = nbeta / gamma * values
    log_weight = log_density - n_out / 2 * np.log1p(scaled)
    energy = n_out / 2 * scaled / (1 + scaled)
    if small == 1:
        weight = np.exp(log_weight - log_weight.max())
        return float((weight * energy).sum() / weight.sum())
    gap = np.abs(values[:, None] - values)
    weight = gap * np.exp(log_weight[:, None] + log_weight - 2 * log_weight.max())
    return float((weight * (energy[:, None] + energy)).sum() / weight.sum())


def of_linear_readout(
    features: Callable[[np.ndarray], np.ndarray],
    inner: Sequence[float],
    outer: np.ndarray,
    nbeta: float,
    gamma: float = 1.0,
    noise: np.ndarray | float = 0.0,
) -> float:
    r"""For $y = A\,\phi(x, \theta)$ with one to three inner parameters θ: A is integrated out, θ on a grid.

    ``noise`` is what targets have beside it. Given θ the loss is quadratic in each row of A, whose posterior is normal
    with precision $P = n\beta\,\overline{\phi\phi^\top} + \gamma$.
    """
    axes = [_grid(center, 241 if len(inner) < 3 else 81) for center in inner]
    points = np.stack([g.ravel() for g in np.meshgrid(*(a for a, _ in axes), indexing="ij")], 1)
    cells = np.prod(np.stack([g.ravel() for g in np.meshgrid(*(w for _, w in axes), indexing="ij")], 1), 1)
    clean = features(np.array([inner]))[0] @ outer.T  # (examples, outputs)
    truth = clean + noise
    logs, energies = [], []
    for some in np.array_split(points, max(1, len(points) * len(clean) // 500_000)):
        phi = features(some)
        second = nbeta * np.einsum("pni,pnj->pij", phi, phi, optimize=True) / phi.shape[1]
        cross = nbeta * np.einsum("pni,no->poi", phi, truth, optimize=True) / phi.shape[1]
        precision = second + gamma * np.eye(phi.shape[2])
        inverse = np.linalg.inv(precision)
        centre = (cross + gamma * outer) @ inverse  # (points, outputs, units)
        # nβL at the centre, and half the trace of second · covariance for every output
        quad = ((centre @ second / 2 - cross) * centre).sum((1, 2))
        quad += nbeta * ((truth**2).sum() - ((truth - clean) ** 2).sum()) / phi.shape[1] / 2
        spread = len(outer) / 2 * np.einsum("pij,pji->p", second, inverse)
        pull = gamma / 2 * ((centre - outer) ** 2).sum((1, 2)) + gamma / 2 * ((some - np.array(inner)) ** 2).sum(1)
        logs.append(-quad - pull - len(outer) / 2 * np.linalg.slogdet(precision)[1])
        energies.append(quad + spread)
    log, energy = np.concatenate(logs), np.concatenate(energies)
    weight = cells * np.exp(log - log.max())
    return float((weight * energy).sum() / weight.sum())


def of_regular(curvature: np.ndarray, nbeta: float, gamma: float = 1.0) -> float:
    r"""$\frac12 \sum_i n\beta h_i / (n\beta h_i + \gamma)$ for a quadratic loss with eigenvalues ``curvature``, at
    ``nbeta`` with a pull ``gamma``.

    >>> of_regular(np.array([1.0, 3.0]), 1.0)
    0.625
    """
    return float((nbeta * curvature / (nbeta * curvature + gamma)).sum() / 2)


def _grid(center: float, points: int) -> tuple[np.ndarray, np.ndarray]:
    """Points dense about 0 and ±center (a unit may change its sign), and the widths of their cells."""
    reach = 10.0 if points > 200 else 7.0
    away = np.sinh(np.linspace(-reach, reach, points)) / np.sinh(reach) * 7
    places = np.unique(np.concatenate([away + c for c in {0.0, center, -center}]))
    return places, np.gradient(places)


def _net(weights: Sequence[np.ndarray], between: type[nn.Module], bias: np.ndarray | None = None) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i, w in enumerate(weights):
        layer = nn.Linear(w.shape[1], w.shape[0], bias=bias is not None and i == 0, dtype=f64)
        with torch.no_grad():
            layer.weight.copy_(torch.as_tensor(w))
            if bias is not None and i == 0:
                layer.bias.copy_(torch.as_tensor(bias))
        layers += [layer, between()]
    return nn.Sequential(*layers[:-1])


def white(n: int, dimension: int, seed: int = 0) -> Tensor:
    """``n`` inputs of this ``dimension``, drawn by ``seed``, whose second moment is exactly the identity."""
    x = torch.randn(n, dimension, dtype=f64, generator=torch.Generator().manual_seed(seed))
    return torch.linalg.qr(x)[0] * math.sqrt(n)


def unexplained(size: float, basis: Tensor, outputs: int = 1) -> Tensor:
    """Normal noise of standard deviation ``size`` without its part in the columns of the orthonormal ``basis``."""
    noise = size * torch.randn(len(basis), outputs, dtype=f64, generator=torch.Generator().manual_seed(1))
    return noise - basis @ (basis.T @ noise)


def _linear(widths: Sequence[int], rank: int, nbeta: float, exact: float | None = None) -> Posterior:
    """A deep linear network at a map of the given rank, layers diagonal."""
    net = _net([np.eye(b, a) * (np.arange(a) < rank) for a, b in itertools.pairwise(widths)], nn.Identity)
    source = "quadrature" if exact is not None else "Aoyagi"
    name = f"linear {'-'.join(map(str, widths))}, rank {rank}"
    exact = rlct_deep_linear(widths, rank)[0] if exact is None else exact
    return Posterior(name, net, white(8, widths[0]), nbeta, exact, source=source)


def _tanh(
    name: str,
    inner: Sequence[float],
    outer: np.ndarray,
    nbeta: float,
    bias: bool = False,
    act: type[nn.Module] = nn.Tanh,
    batch_size: int | None = None,
) -> Posterior:
    x = torch.linspace(-2, 2, 24 if batch_size is None else 512, dtype=f64)[:, None]
    units = 1 if bias else len(inner)
    functions: dict[type[nn.Module], Callable[[np.ndarray], np.ndarray]]
    functions = {nn.Tanh: np.tanh, nn.ReLU: lambda z: np.maximum(z, 0), nn.Identity: lambda z: z}
    f = functions[act]

    def features(theta: np.ndarray) -> np.ndarray:
        z = theta[:, None, :units] * x.numpy()[None]
        return np.asarray(f(z + theta[:, None, units:] if bias else z))

    net = _net([np.array(inner[:units])[:, None], outer], act, np.array(inner[units:]) if bias else None)
    if batch_size is None:
        return Posterior(name, net, x, nbeta, of_linear_readout(features, inner, outer, nbeta))
    # orthogonal to what the unit can be with any weights, so that w* stays the minimum
    far = np.stack([g.ravel() for g in np.meshgrid(np.linspace(-8, 8, 60), np.linspace(-8, 8, 40) * bias)], 1)
    left, values, _ = np.linalg.svd(f(far[:, :1] * x.numpy().T + far[:, 1:]).T, full_matrices=False)
    noise = unexplained(0.5, torch.as_tensor(left[:, values > 1e-6 * values[0]]), len(outer))
    exact = of_linear_readout(features, inner, outer, nbeta, noise=noise.numpy())
    return Posterior(name, net, x, nbeta, exact, noise=noise, batch_size=batch_size)


def catalogue() -> dict[str, Callable[[], Posterior]]:
    """All posteriors by name; each is made, and its answer computed, when it is called.

    >>> found = catalogue()["ab at nβ = 2e5"]()
    >>> round(found.exact, 3), len(catalogue()) >= 25
    (0.427, True)
    """
    one = torch.ones(4, 1, dtype=f64)
    eighth = torch.tensor([[1.0, -1.0], [1.0, 1.0]], dtype=f64) / math.sqrt(2)

    def monomial(*powers: int, nbeta: float = 1e3, gamma: float = 1.0, turn: Tensor | None = None) -> Posterior:
        exact = of_monomial(powers, nbeta, gamma)
        return Posterior("", Monomials(powers, turn=turn), one, nbeta, exact, gamma)

    def additive() -> Posterior:
        exact = of_monomial([2], 1e3) + of_monomial([3], 1e3) + of_monomial([1], 1e3)
        return Posterior("a², b³, c", Monomials((2, 0, 0), (0, 3, 0), (0, 0, 1)), one, 1e3, exact)

    def product(n_in: int, hidden: int, n_out: int, nbeta: float = 1e4) -> Posterior:
        return _linear((n_in, hidden, n_out), 0, nbeta, of_linear_product(n_in, hidden, n_out, nbeta))

    def deep(*widths: int, nbeta: float = 1e3) -> Posterior:
        if 1 in widths[1:-1]:
            return _linear(widths, 0, nbeta, of_linear_chain(widths, nbeta))
        return replace(_linear(widths, 0, nbeta, of_linear_draws(widths, nbeta)), source="weighted draws")

    def rank_one(n_in: int, hidden: int, n_out: int, nbeta: float = 1e4) -> Posterior:
        found = _linear((n_in, hidden, n_out), 1, nbeta)
        x = found.x.numpy()
        inner = np.eye(hidden, n_in).ravel()
        inner[1:] = 0
        outer = np.zeros((n_out, hidden))
        outer[0, 0] = 1
        exact = of_linear_readout(
            lambda th: np.einsum("phi,ni->pnh", th.reshape(-1, hidden, n_in), x), inner.tolist(), outer, nbeta
        )
        return Posterior(found.name, found.model, found.x, nbeta, exact)

    def regular(scale: float, gamma: float = 1.0, nbeta: float = 300.0) -> Posterior:
        x = white(8, 4) * torch.logspace(0, math.log10(scale), 4, dtype=f64)
        net = nn.Linear(4, 1, bias=False, dtype=f64)
        nn.init.ones_(net.weight)
        curvature = (x.T @ x / len(x)).diagonal().numpy()
        name = f"regular, curvatures 1 to {scale**2:.0f}" + (f", γ = {gamma:g}" if gamma != 1 else "")
        return Posterior(name, net, x, nbeta, of_regular(curvature, nbeta, gamma), gamma, "closed form")

    def noisy(p: Posterior, inputs: int, outputs: int = 1, noise: float = 0.5) -> Posterior:
        """With 512 examples and noise, for minibatches of 64."""
        x = white(512, inputs)
        return replace(p, x=x, noise=unexplained(noise, x / math.sqrt(512), outputs), batch_size=64)

    def quadratic(size: int, scale: float = 1.0, gamma: float = 1.0, noise: float = 0.5) -> Posterior:
        net = nn.Linear(size, 1, bias=False, dtype=f64)
        nn.init.ones_(net.weight)
        stretch = torch.logspace(0, math.log10(scale), size, dtype=f64)
        exact = of_regular(stretch.square().numpy(), 300.0, gamma)
        p = noisy(Posterior("", net, white(8, 1), 300.0, exact, gamma, "closed form"), size, noise=noise)
        return replace(p, x=p.x * stretch)

    tanh64 = partial(_tanh, "", nbeta=300.0, batch_size=64)
    one_of_two, ones = np.array([[1.0, 0.0]]), np.ones((1, 1))

    made: dict[str, Callable[[], Posterior]] = {
        "a²": lambda: monomial(2),
        "a³": lambda: monomial(3),
        "a⁴": lambda: monomial(4, gamma=0.1),
        "a⁴ at nβ = 2e5": lambda: monomial(4, nbeta=2e5),
        "ab": lambda: monomial(1, 1),
        "ab at nβ = 2e5": lambda: monomial(1, 1, nbeta=2e5),
        "ab, turned": lambda: monomial(1, 1, turn=eighth),
        "ab², turned, at nβ = 1e5": lambda: monomial(1, 2, turn=eighth, nbeta=1e5),
        "ab²": lambda: monomial(1, 2),
        "(ab)²": lambda: monomial(2, 2, gamma=0.1),
        "(ab)² at nβ = 1e5": lambda: monomial(2, 2, nbeta=1e5),
        "a²b³": lambda: monomial(2, 3, gamma=0.1),
        "a²b³ at nβ = 1e5": lambda: monomial(2, 3, nbeta=1e5),
        "abc": lambda: monomial(1, 1, 1),
        "abcd at nβ = 1e4": lambda: monomial(1, 1, 1, 1, nbeta=1e4),
        "a², b³, c": additive,
        "tanh unit, dead": lambda: _tanh("", [0.0], np.zeros((1, 1)), 1e3),
        "tanh unit, alive": lambda: _tanh("", [1.0], np.ones((1, 1)), 1e3),
        "tanh unit with bias, dead": lambda: _tanh("", [0.0, 0.0], np.zeros((1, 1)), 1e3, bias=True),
        "tanh unit with bias, two outputs": lambda: _tanh("", [1.0, 0.5], np.array([[1.0], [-1.0]]), 1e3, bias=True),
        "two tanh units, both dead": lambda: _tanh("", [0.0, 0.0], np.zeros((1, 2)), 1e3),
        "two tanh units, one dead": lambda: _tanh("", [1.0, 0.0], np.array([[1.0, 0.0]]), 1e3),
        "two tanh units, equal": lambda: _tanh("", [1.0, 1.0], np.array([[0.5, 0.5]]), 1e3),
        "three tanh units, all dead": lambda: _tanh("", [0.0] * 3, np.zeros((1, 3)), 1e3),
        "three tanh units, one alive": lambda: _tanh("", [1.0, 0.0, 0.0], np.array([[1.0, 0.0, 0.0]]), 1e3),
        "three tanh units, two equal": lambda: _tanh("", [1.0, 1.0, 0.0], np.array([[0.5, 0.5, 0.0]]), 1e3),
        "three tanh units, dead, two outputs": lambda: _tanh("", [0.0] * 3, np.zeros((2, 3)), 1e3),
        "two ReLU units, one dead": lambda: _tanh("", [1.0, 0.0], np.array([[1.0, 0.0]]), 1e3, act=nn.ReLU),
        "regular": lambda: regular(1.0),
        "regular, curvatures 1 to 10000": lambda: regular(100.0),
        "regular, γ = 10": lambda: regular(1.0, gamma=10.0),
        "linear 4-3-4, rank 1": lambda: _linear((4, 3, 4), 1, 1e6),
        "linear 3-3-4, rank 2": lambda: _linear((3, 3, 4), 2, 1e6),
        "linear 3-4-4-3, rank 3": lambda: _linear((3, 4, 4, 3), 3, 1e6),
    }
    made |= {  # just off a singular point, at the distance a or apart by it
        **{f"tanh unit, a = {a}": partial(_tanh, "", [a], a * ones, 1e3) for a in (0.03, 0.1, 0.2, 0.3, 0.5)},
        **{f"ab, a = b = {a}": partial(_tanh, "", [a], a * ones, 1e3, act=nn.Identity) for a in (0.1, 0.3)},
        **{f"ab, a = {a}, b = 0": partial(_tanh, "", [a], 0 * ones, 1e3, act=nn.Identity) for a in (0.1, 0.5)},
        **{
            f"two tanh units, the second {a}": partial(_tanh, "", [1.0, a], np.array([[1.0, a]]), 1e3)
            for a in (0.1, 0.3)
        },
        **{
            f"two tanh units, apart by {a}": partial(_tanh, "", [1.0, 1.0 + a], np.array([[0.5, 0.5]]), 1e3)
            for a in (0.1, 1.0)
        },
        "two ReLU units, the second 0.1": partial(_tanh, "", [1.0, 0.1], np.array([[1.0, 0.1]]), 1e3, act=nn.ReLU),
    }
    small: dict[str, Callable[[], Posterior]] = {
        "regular, 10 parameters": partial(quadratic, 10),
        "regular, 200 parameters": partial(quadratic, 200),
        "regular, curvatures 1 to 900": partial(quadratic, 10, scale=30.0),
        "regular, noise 2, γ = 10": partial(quadratic, 10, gamma=10.0, noise=2.0),
        "a²": lambda: noisy(monomial(2, nbeta=300.0), 1),
        "ab": lambda: noisy(monomial(1, 1, nbeta=300.0), 1),
        "linear 2-2-2, rank 0": lambda: noisy(product(2, 2, 2, nbeta=300.0), 2, 2),
        "linear 4-1-3, rank 0": lambda: noisy(product(4, 1, 3, nbeta=300.0), 4, 3),
        "tanh unit, dead": lambda: tanh64(inner=[0.0], outer=0 * ones),
        "tanh unit, alive": lambda: tanh64(inner=[1.0], outer=ones),
        "tanh unit with bias, two outputs": lambda: tanh64(
            inner=[1.0, 0.5], outer=np.array([[1.0], [-1.0]]), bias=True
        ),
        "two tanh units, one dead": lambda: tanh64(inner=[1.0, 0.0], outer=one_of_two),
        "two tanh units, the second 0.3": lambda: tanh64(inner=[1.0, 0.3], outer=np.array([[1.0, 0.3]])),
    }
    made |= {f"minibatches of 64, {name}": make for name, make in small.items()}
    for sizes in ((2, 2, 2), (2, 2, 5), (3, 2, 4), (4, 1, 3)):
        made[f"linear {sizes[0]}-{sizes[1]}-{sizes[2]}, rank 0"] = partial(product, *sizes)
    for widths in ((2, 1, 2, 2), (1, 2, 1, 2), (3, 2, 1, 2), (2, 1, 1, 2), (2, 2, 2, 2), (3, 2, 2, 1), (2, 2, 3, 2)):
        made[f"linear {'-'.join(map(str, widths))}, rank 0"] = partial(deep, *widths)
    for sizes in ((1, 2, 1), (1, 2, 3), (2, 1, 3)):
        made[f"linear {sizes[0]}-{sizes[1]}-{sizes[2]}, rank 1"] = partial(rank_one, *sizes)
    return {name: partial(_named, name, make) for name, make in made.items()}


def _named(name: str, make: Callable[[], Posterior]) -> Posterior:
    return replace(make(), name=name)
