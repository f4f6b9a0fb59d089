r"""When does the loss leave its plateau, from one look: factors of the output by the exact laws, and a look-ahead.

Gradient flow moves the square of a layer's norm by twice its pull, $\tfrac{d}{d\tau}\lVert W_\ell\rVert^2=2\rho_\ell$,
$\rho_\ell=-\langle W_\ell,\nabla_\ell\ell\rangle$. The exact laws of the anatomy (V → O, Q against K, the value of a
gated block → its output, neighbours of a chain) say that the pulls of two partners are equal. Where the output is a
product of r factors every one of them has the pull of the signal itself, $\rho_\ell=\gamma$, and a layer that takes no
part in it yet has none: on a tiny attention block V and O pull and Q and K do not, on a tiny gated one gate, value and
output all do. So r is counted on this very network, when a copy that is carried along the flow has grown, and the copy
goes on until it leaves the plateau (:mod:`netvitals.saddle.rollout.strides`).

What the copy does not know is which examples will come. The interval is as wide as the batch is small
(:mod:`netvitals.saddle.rollout.looks`): $\operatorname{Var}\ln t=s_0^2+k^2s^2$ with s the standard error of the slope
along its own direction, and the time is longer by $e^{r\nu/4}$ than the copy's, because a direction of r factors that
was found on the batch fits it better than it fits other examples (by half of rν where it is the batch's best one).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from netvitals.anatomy import Anatomy, chart
from netvitals.capture import LossFn, Mode, in_mode, preserved, task_of, undisturbed
from netvitals.saddle.measure.forecasting import EscapeForecast, made_forecast, no_forecast, optimizer_rule
from netvitals.saddle.measure.outlook import HELD_DOWN, LEAVES
from netvitals.saddle.measure.plateau import NORMS
from netvitals.saddle.rollout import strides as path
from netvitals.saddle.rollout.looks import PlateauState, factors_of, look, sampling, small_parts, weight_parts

NOISE = 0.3  # share of the squared gradient that may be the batch's own
WARM = 20  # steps that Adam has taken before its second moments are believed
# on the tuning families of bench/forecasts/escape_rollout.py: standard deviation of ln(time left) beside the batch's,
# what a standard
# error from sixteen parts is short of, and the share of rν by which the time is longer on other examples
LOOKAHEAD_SPREAD, WIDER, FITS = 0.04, 1.15, 0.25
ADAM_SPREAD, ADAM_WIDER = 0.05, 0.45  # of Adam, which divides half of the batch's own out


@undisturbed
def escape_rollout(
    model: nn.Module,
    loss_fn: LossFn,
    batch: Any,
    *,
    optimizer: torch.optim.Optimizer | float,
    mode: Mode = "as_is",
    seed: int = 0,
    step: int = 0,
    level: float = 0.8,
    anatomy: Anatomy | None = None,
    examples: int | None = None,
    when: Callable[[float], float] | None = None,
) -> EscapeForecast:
    """Forecast the end of a plateau from one look at a model, which is left as it was.

    Args:
        model: as it stands.
        loss_fn: a function of (output, target), a mean over the batch; or its name.
        batch: a batch that stands for the data, (x, y).
        optimizer: SGD, or Adam that has taken some steps, whose rule and learning rate count; or the learning rate of
            plain gradient descent.
        mode: ``"as_is"``, ``"train"`` or ``"eval"``.
        seed: seed of the random numbers that the model draws.
        step: number of the training step.
        level: nominal coverage of the interval.
        anatomy: of this model, where it is known already.
        examples: in a batch of the loop, whose noise Adam divides by; as many as in this one if left out.
        when: the step by which so much more learning rate is spent, as the schedule has it; constant if left out.

    Returns:
        When the loss has fallen by a twentieth of what it is at rest, or the reason why nobody can tell from one look.
        It costs 125 gradients of the batch at most, and less than half of that as a rule.

    >>> _ = torch.manual_seed(0)
    >>> net = nn.Sequential(nn.Linear(4, 16, bias=False), nn.Linear(16, 1, bias=False))
    >>> x = torch.randn(64, 4)
    >>> print(escape_rollout(net, "mse", (x, x[:, :1]), optimizer=0.1).reason)
    no layer is small against its usual initialisation: there is no plateau of this kind
    >>> with torch.no_grad():
    ...     _ = [p.mul_(0.01) for p in net.parameters()]
    >>> found = escape_rollout(net, "mse", (x, x[:, :1]), optimizer=0.1)
    >>> found.r, found.low < found.step < found.high
    (2, True)
    """
    refuse = lambda why: no_forecast(step, why, drop=LEAVES, level=level)
    task = task_of(model, loss_fn, batch)
    if task.loss_fn is None or task.call is not None:
        return refuse("a plateau is one of a loss of (output, target), and a batch that the model takes itself")
    with preserved(model), in_mode(model, mode), torch.enable_grad():
        anatomy = chart(model, task.inputs, keep_tensors=False) if anatomy is None else anatomy
        norm = next((o.name for o in anatomy.operations if any(k in o.name for k in NORMS)), None)
        if norm is not None:
            return refuse(f"{norm} removes the scale of the layers before it, and with it the law")
        seen = look(model, task, seed)
        flow, why = _flow(model, optimizer, seen)
        if why:
            return refuse(why)
        small, why = small_parts(model, seen, anatomy)
        if why:
            return refuse(why)
        noise = sampling(model, loss_fn, batch, task.examples, seed)
        if not noise.share < NOISE:
            return refuse(
                f"{100 * min(noise.share, 1.0):.0f} % of the slope of the loss is noise of these {task.examples} "
                f"examples: a larger batch can tell"
            )
        if isinstance(flow, path.AdamFlow):
            flow.noisy = 1 + noise.share * task.examples / (examples or task.examples)
        parts = [p for p in weight_parts(anatomy) if p.parameter in seen.grads]
        found = path.begin(model, task, parts, flow, seed)
        if found.reason:
            return refuse(found.reason)
        factors, why = factors_of(model, found.looks[-1], anatomy, small)
        if why:
            return refuse(why)
        noise = sampling(model, loss_fn, batch, task.examples, seed)  # along the direction that grows
        path.go_on(model, task, parts, flow, seed, found)
        taus, paces, supposed, why = path.path(found, task, len(factors))
    if why:
        return refuse(why)
    if isinstance(flow, path.AdamFlow) and supposed:
        return refuse("a look-ahead did not come to the end of this plateau, and the law of its rest is that of SGD")
    if flow.decay * supposed > HELD_DOWN:
        return refuse("weight decay holds the small layers down, and the law knows none")
    r = len(factors)
    steps = flow.steps(taus, paces) * math.exp(FITS * r * noise.share)
    step_of = steps if when is None else when(steps * flow.lr) - step
    if not math.isfinite(step_of):
        return refuse("the learning rate that is left does not reach its end")
    adam = isinstance(flow, path.AdamFlow)
    spread, wider = (ADAM_SPREAD, ADAM_WIDER) if adam else (LOOKAHEAD_SPREAD, WIDER)
    told = made_forecast(step, step_of, level, r, LEAVES, "look-ahead", math.hypot(spread, wider * noise.stderr))
    return replace(told, rest=seen.resting)


def _flow(model: nn.Module, optimizer: torch.optim.Optimizer | float, seen: PlateauState) -> tuple[path.Flow, str]:
    """How the optimizer moves the weights, or why one look does not tell."""
    none = path.Flow(math.nan)
    if isinstance(optimizer, int | float):
        good = math.isfinite(optimizer) and optimizer > 0
        return path.Flow(float(optimizer)), "" if good else f"the learning rate is {optimizer}"
    arguments, why = optimizer_rule(optimizer)
    name, group = type(optimizer).__name__, optimizer.param_groups[0]
    if not why and not arguments["lr"] > 0:
        why = "the learning rate is zero"
    if why:
        return none, why
    decay = float(group.get("weight_decay", 0.0))
    if arguments["rule"] == "sgd":
        state = next((s for s in optimizer.state.values() if s.get("momentum_buffer") is not None), None)
        return path.Flow(arguments["lr"], arguments["momentum"], decay, cold=state is None), ""
    weights = dict(model.named_parameters())
    states = {n: optimizer.state.get(weights[n]) or {} for n in seen.grads}
    taken = min((float(s.get("step", 0)) for s in states.values()), default=0.0)
    if arguments["rule"] != "adam" or not all("exp_avg_sq" in s for s in states.values()) or taken < WARM:
        return none, f"{name} divides by what the gradients have been, which a first look does not show: watch it"
    if decay and name != "AdamW":
        return none, f"{name} divides its weight decay too, and the look-ahead does not"
    seconds = {n: s["exp_avg_sq"].detach().clone() for n, s in states.items()}
    beta1, beta2 = (float(b) for b in group["betas"])
    return path.AdamFlow(arguments["lr"], decay, seconds, beta1, beta2, float(group["eps"]), taken), ""
