r"""Weight drift at initialisation in closed form: how hard, and in which direction, a random network is pushed.

Setting: downstream of layer l a ReLU network without biases whose weights are independent, symmetric about zero, with
variance $\sigma_k^2$; the post-activation $a = \varphi(p)$ is given. Statements D1–D7 of the theory; numbers follow by

$$c_l = d_{out}\,\sigma_L^2 \prod_{k=l+1}^{L-1} \tfrac12 d_k \sigma_k^2, \qquad
E\Big[\frac{\partial \ell}{\partial p_i}\Big] = c_l\,\varphi(p_i)\,\varphi'(p_i) \quad (\tfrac12\lVert o-y\rVert^2).$$
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from netvitals.activations import derivative, expect, get

Activation = str | nn.Module | Callable[[Tensor], Tensor]


def downstream_gain(outputs: int, readout_variance: float, hidden: Sequence[tuple[int, float]] = ()) -> float:
    r"""$c_l = E\lVert v_i\rVert^2$, $v_i$ the column of the map from unit i's activation to the outputs (D1).

    >>> downstream_gain(5, 1 / 8), downstream_gain(5, 1 / 12, [(12, 2 / 8)])
    (0.625, 0.625)
    """
    if outputs < 1 or readout_variance < 0 or any(d < 1 or v < 0 for d, v in hidden):
        raise ValueError(
            f"widths must be positive and variances not negative, got outputs={outputs}, "
            f"readout_variance={readout_variance}, hidden={list(hidden)}"
        )
    return outputs * readout_variance * math.prod(0.5 * d * v for d, v in hidden)


def he_gain(width: int, outputs: int) -> float:
    """c_l = d_out/d_l: He-initialised hidden layers and a readout of variance 1/fan_in, at any depth (D1).

    >>> he_gain(8, 5)
    0.625
    """
    if width < 1 or outputs < 1:
        raise ValueError(f"width and outputs must be positive, got {width} and {outputs}")
    return outputs / width


def expected_gradient(p: Tensor, f: Activation = "relu", *, gain: float) -> Tensor:
    r"""$E[\partial\ell/\partial p_i] = c_l\,\varphi(p_i)\varphi'(p_i)$ for $\ell=\tfrac12\lVert o-y\rVert^2$ (D2).

    The label drops out: it is independent of the weights downstream, whose mean is zero.

    >>> expected_gradient(torch.tensor([2.0, -1.0]), gain=0.5).tolist()
    [1.0, 0.0]
    """
    return gain * force(p, f)


def expected_gradient_of_loss(p: Tensor, inner: Tensor | float, f: Activation = "relu") -> Tensor:
    r"""$E[\partial\ell/\partial p_i] = \varphi'(p_i)\,a_i\,\lVert a\rVert^{-2}\,E\langle o,\nabla_o\ell\rangle$ (D4).

    For any differentiable loss and Gaussian weights.

    >>> expected_gradient_of_loss(torch.tensor([3.0, 4.0, -1.0]), 5.0).tolist()
    [0.6, 0.8, 0.0]
    """
    values, slope = _function_and_slope(p, f)
    power = values.square().sum(-1, keepdim=True)
    if bool((power == 0).any()):
        raise ValueError("all activations of a sample are zero: nothing downstream depends on them, and no force acts")
    return slope * values / power * torch.as_tensor(inner, dtype=torch.float64).unsqueeze(-1)


def cross_entropy_force(p: Tensor, f: Activation = "relu", *, readout_variance: float, doubt: float) -> Tensor:
    r"""$\sigma_L^2\,\varphi(p_i)\varphi'(p_i)\,E[1-\lVert s\rVert^2]$: cross-entropy, readout only (D3)."""
    return readout_variance * doubt * force(p, f)


def expected_weight_gradient(x: Tensor, p: Tensor, f: Activation = "relu", *, gain: float) -> Tensor:
    r"""$E[\partial L/\partial W_{ik}] = c_l\,E_x[\varphi\varphi'(p_i)\,x_k]$, shape (units, inputs), for MSE (D6)."""
    if x.ndim != 2 or p.ndim != 2 or len(x) != len(p):
        raise ValueError(
            f"expected inputs (samples, inputs) and pre-activations (samples, units), got "
            f"{tuple(x.shape)} and {tuple(p.shape)}"
        )
    return gain * force(p, f).T @ x.double() / len(x)


def first_step_drift(x: Tensor, p: Tensor, f: Activation = "relu", *, gain: float, lr: float) -> float:
    r"""$E\,\Delta\bar W = -\eta\,c_l\,\mathrm{mean}_{ik} E_x[\varphi\varphi'(p_i)x_k]$: one SGD step on MSE (D6).

    >>> x = torch.tensor([[1.0, 3.0], [1.0, 1.0]])
    >>> first_step_drift(x, torch.tensor([[2.0], [-1.0]]), gain=0.5, lr=0.1)
    -0.1
    """
    return -lr * float(expected_weight_gradient(x, p, f, gain=gain).mean())


def mean_force(f: Activation, *, mu: float = 0.0, sigma: float = 1.0) -> float:
    r"""$E[\varphi\varphi'(p)]$ for $p \sim N(\mu,\sigma^2)$: its sign, not that of the gradient on positive units,
    tells whether there is drift (D11).

    >>> round(mean_force("relu"), 6), abs(mean_force("tanh")) < 1e-12
    (0.398942, True)
    """
    return expect(lambda z: force(z, f), mu=mu, sigma=sigma)


def drift_sign(f: Activation, input_mean: float, *, mu: float = 0.0, sigma: float = 1.0) -> int:
    r"""Sign of the drift of a layer's weights: $-\mathrm{sign}\,E[\varphi\varphi'(p)]\cdot\mathrm{sign}\,E[x]$ (D7).

    >>> drift_sign("relu", 0.4), drift_sign("neg_relu", -0.4), drift_sign("relu", -0.4), drift_sign("tanh", 0.4)
    (-1, -1, 1, 0)
    """
    strength = mean_force(f, mu=mu, sigma=sigma)
    if abs(strength) < 1e-10 or input_mean == 0:
        return 0
    return -int(math.copysign(1, strength) * math.copysign(1, input_mean))


def cross_entropy_inner(logits: Tensor, labels: Tensor) -> Tensor:
    r"""$\langle o,\nabla_o\ell\rangle = \sum_c s_c o_c - o_y$ per sample (D5): positive while the model is at or below
    chance, negative once the true logit beats the softmax-weighted mean.

    >>> cross_entropy_inner(torch.tensor([[2.0, 0.0]]), torch.tensor([0])) < 0
    tensor([True])
    """
    return (logits.softmax(-1) * logits).sum(-1) - logits.gather(-1, labels.unsqueeze(-1)).squeeze(-1)


def squared_error_inner(outputs: Tensor, targets: Tensor) -> Tensor:
    r"""$\langle o,\nabla_o\ell\rangle = \lVert o\rVert^2 - \langle o,y\rangle$ per sample, half the squared error (D5).

    >>> squared_error_inner(torch.tensor([[2.0, 1.0]]), torch.tensor([[1.0, 0.0]])).tolist()
    [3.0]
    """
    return (outputs * (outputs - targets)).sum(-1)


def force(p: Tensor, f: Activation = "relu") -> Tensor:
    r"""$\varphi(p)\varphi'(p) = \tfrac12\,\tfrac{d}{dp}\varphi^2(p)$ in float64: the push of an output-energy penalty.

    >>> force(torch.tensor([-1.0, 3.0])).tolist()
    [0.0, 3.0]
    """
    values, slope = _function_and_slope(p, f)
    return values * slope


def _function_and_slope(p: Tensor, f: Activation) -> tuple[Tensor, Tensor]:
    p = p.detach().double()
    twin = copy.deepcopy(get(f)).double().eval()
    with torch.no_grad():
        return twin(p), derivative(twin)(p)
