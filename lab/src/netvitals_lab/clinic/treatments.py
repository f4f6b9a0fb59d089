"""Remedies, done: what a finding advises is applied to the running session, and the run goes on.

Each remedy is a function of a running session, its optimizer and the remedy; it returns the optimizer to go on with.
What a person would mend in the code is mended in the session, whose loop is data.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from netvitals.runs import Remedy
from netvitals_lab.clinic.disease import layers
from netvitals_lab.clinic.networks import Cut, Softmaxed
from netvitals_lab.clinic.session import Session

Optimizer = torch.optim.Optimizer
Treatment = Callable[[Session, Optimizer, Remedy, int], Optimizer]
WARMUP = 10


def treat(session: Session, optimizer: Optimizer, remedy: Remedy, step: int) -> Optimizer:
    """Do what a finding advises, from ``step`` on."""
    if remedy.kind not in TREATMENTS:
        raise ValueError(f"there is no treatment {remedy.kind!r}; there are {', '.join(TREATMENTS)}")
    with torch.no_grad():
        return TREATMENTS[remedy.kind](session, optimizer, remedy, step)


def _fresh(session: Session, optimizer: Optimizer) -> Optimizer:
    """A new optimizer, and gradients that are empty."""
    for p in session.model.parameters():
        p.grad = None
    return session.make_optimizer()


def _drawn_anew(p: Tensor, gain: float, generator: torch.Generator) -> None:
    fan_in = math.prod(p.shape[1:])
    bound = gain * math.sqrt(3 / fan_in)
    p.copy_((2 * torch.rand(p.shape, generator=generator) - 1) * bound)


def _redraw(session: Session, only: tuple[str, ...], gain: float, seed: int) -> None:
    """Weights with a variance of gain²/fan-in and biases at zero; embeddings and norms as they are made."""
    g = torch.Generator().manual_seed(seed)
    owners = {name.rpartition(".")[0] for name in only if "weight" in name.rpartition(".")[2]}
    chosen = owners | set(only)
    named = dict(session.model.named_modules())
    found = layers(session.model)
    for i, (name, m) in enumerate(found):
        if only and name not in chosen and not any(name.startswith(f"{o}.") for o in only):
            continue
        assert isinstance(m.weight, Tensor)
        _drawn_anew(m.weight, gain if i + 1 < len(found) else 0.6 * gain, g)
        if isinstance(m.bias, Tensor):
            m.bias.zero_()
    for name, m in named.items():
        if only and name not in chosen:
            continue
        if isinstance(m, nn.RNNBase):
            m.reset_parameters()
        elif isinstance(m, nn.Embedding) and not only:
            _drawn_anew(m.weight, 1.0, g)
        elif hasattr(m, "reset_parameters") and "norm" in type(m).__name__.lower() and not only:
            m.reset_parameters()


def _rate(session: Session, optimizer: Optimizer, remedy: Remedy, step: int) -> Optimizer:
    session.lr *= remedy.amount or 1.0
    return optimizer


def _epsilon(session: Session, optimizer: Optimizer, remedy: Remedy, step: int) -> Optimizer:
    session.eps = remedy.amount or 1e-8
    for group in optimizer.param_groups:
        if "eps" in group:
            group["eps"] = session.eps
    return optimizer


def _restart(session: Session, optimizer: Optimizer, remedy: Remedy, step: int) -> Optimizer:
    session.lr = (session.rate(step) or session.lr) * (remedy.amount or 1.0)  # of the rate that was found too high
    session.schedule = lambda at: min(1.0, max(at - step + 1, 1) / WARMUP)
    _redraw(session, (), 1.0, step)
    return _fresh(session, optimizer)


def _momentum(session: Session, optimizer: Optimizer, remedy: Remedy, step: int) -> Optimizer:
    session.momentum = remedy.amount or 0.9
    _redraw(session, (), 1.0, step)
    return _fresh(session, optimizer)


def _constant(session: Session, optimizer: Optimizer, remedy: Remedy, step: int) -> Optimizer:
    session.schedule = lambda at: remedy.amount or 1.0
    return optimizer


def _clip(session: Session, optimizer: Optimizer, remedy: Remedy, step: int) -> Optimizer:
    session.clip = remedy.amount
    return optimizer


def _decay(session: Session, optimizer: Optimizer, remedy: Remedy, step: int) -> Optimizer:
    """Less decay; gains of norms that were taken away begin at one again."""
    session.weight_decay *= remedy.amount or 1.0
    session.decay_norms = False
    for m in session.model.modules():
        if "norm" in type(m).__name__.lower() and isinstance(getattr(m, "weight", None), Tensor):
            m.weight.fill_(1.0)  # type: ignore[operator]
    return _fresh(session, optimizer)


def _reinitialise(session: Session, optimizer: Optimizer, remedy: Remedy, step: int) -> Optimizer:
    _redraw(session, remedy.places, remedy.amount or 1.0, step)
    session.model_edits = {}
    return _fresh(session, optimizer)


def _zero_grad(session: Session, optimizer: Optimizer, remedy: Remedy, step: int) -> Optimizer:
    session.zero_grad = True
    return _fresh(session, optimizer)


def _train_mode(session: Session, optimizer: Optimizer, remedy: Remedy, step: int) -> Optimizer:
    session.mode = lambda at: "train"
    return optimizer


def _add(session: Session, optimizer: Optimizer, remedy: Remedy, step: int) -> Optimizer:
    session.trained = lambda name: True
    return _fresh(session, optimizer)


def _attach(session: Session, optimizer: Optimizer, remedy: Remedy, step: int) -> Optimizer:
    for m in session.model.modules():
        if isinstance(m, Cut):
            m.healed = True
    return optimizer


def _unfreeze(session: Session, optimizer: Optimizer, remedy: Remedy, step: int) -> Optimizer:
    session.frozen = lambda name: False
    for p in session.model.parameters():
        p.requires_grad_(True)
    return _fresh(session, optimizer)


def _one_softmax(session: Session, optimizer: Optimizer, remedy: Remedy, step: int) -> Optimizer:
    session.squashed = False
    for m in session.model.modules():
        if isinstance(m, Softmaxed):
            m.healed = True
    return _fresh(session, optimizer)


def _negate(session: Session, optimizer: Optimizer, remedy: Remedy, step: int) -> Optimizer:
    session.sign = 1.0
    _redraw(session, (), 1.0, step)  # what was learned the wrong way is worse than nothing
    return _fresh(session, optimizer)


def _mean(session: Session, optimizer: Optimizer, remedy: Remedy, step: int) -> Optimizer:
    session.summed = False
    _redraw(session, (), 1.0, step)
    return _fresh(session, optimizer)


def _accumulate(session: Session, optimizer: Optimizer, remedy: Remedy, step: int) -> Optimizer:
    session.scale_accumulation = True
    return optimizer


def _finite(session: Session, optimizer: Optimizer, remedy: Remedy, step: int) -> Optimizer:
    """Values that are not finite are zero from now on; lost weights are drawn anew, as no checkpoint is at hand."""
    session.batch_edits.append(lambda at, x, y: (torch.nan_to_num(x, 0.0, 0.0, 0.0), y))
    if any(not torch.isfinite(p).all() for p in session.model.parameters()):
        _redraw(session, (), 1.0, step)
        for m in session.model.modules():
            if hasattr(m, "reset_running_stats"):
                m.reset_running_stats()  # type: ignore[operator]
        for p in session.model.parameters():
            p.nan_to_num_(0.0, 0.0, 0.0)
        return _fresh(session, optimizer)
    return optimizer


def _normalise(session: Session, optimizer: Optimizer, remedy: Remedy, step: int) -> Optimizer:
    x = torch.cat([session.batch(at)[0] for at in range(max(0, step - 8), step + 1)])
    mean, std = x.mean(), x.std()
    session.batch_edits.append(lambda at, x, y: ((x - mean) / std, y))
    _redraw(session, (), 1.0, step)
    return _fresh(session, optimizer)


def _clip_input(session: Session, optimizer: Optimizer, remedy: Remedy, step: int) -> Optimizer:
    sample = torch.stack([session.batch(at)[0].std() for at in range(max(0, step - 12), step + 1)])
    limit = (remedy.amount or 5.0) * float(sample.median())
    session.batch_edits.append(lambda at, x, y: (x.clamp(-limit, limit), y))
    return optimizer


def _repair(session: Session, optimizer: Optimizer, remedy: Remedy, step: int) -> Optimizer:
    """The fault in the loader is found by looking: here it is an edit of the data, which is taken out."""
    session.batch_edits = []
    if session.original is not None:
        session.draw = session.original
    return optimizer


def _scale(session: Session, optimizer: Optimizer, remedy: Remedy, step: int) -> Optimizer:
    if session.half is not None:
        session.half = remedy.amount
    if any(not torch.isfinite(p).all() for p in session.model.parameters()):
        _redraw(session, (), 1.0, step)
        for p in session.model.parameters():
            p.nan_to_num_(0.0, 0.0, 0.0)
    return _fresh(session, optimizer)


def _balance(session: Session, optimizer: Optimizer, remedy: Remedy, step: int) -> Optimizer:
    weights = [p for n, p in session.model.named_parameters() if n in remedy.places]
    spread = lambda p: p.square().mean().sqrt() * math.sqrt(math.prod(p.shape[1:]))
    size = torch.stack([spread(p) for p in weights]).log().mean().exp()
    for p in weights:
        p.mul_(size / spread(p))
    return _fresh(session, optimizer)


def _before(session: Session, site: str) -> str:
    """The name of the layer or norm that feeds an activation: the last one that stands before it."""
    names = [n for n, m in session.model.named_modules() if not list(m.children())]
    module = site.partition("#")[0].rpartition("()")[0].rstrip(".") or site.partition("#")[0]
    at = next((i for i, n in enumerate(names) if n == module or n.startswith(f"{module}.")), None)
    kinds = dict(session.model.named_modules())
    for n in reversed(names[:at] if at is not None else []):
        if isinstance(getattr(kinds[n], "weight", None), Tensor):
            return n
    return ""


def _revive(session: Session, optimizer: Optimizer, remedy: Remedy, step: int) -> Optimizer:
    """Layers that feed dead units are drawn anew; what keeps pushing them down is taken out with it."""
    feeding = tuple(dict.fromkeys(n for site in remedy.places if (n := _before(session, site))))
    _redraw(session, feeding, math.sqrt(2.0), step)
    session.model_edits = {}
    session.lr *= 0.5
    return _fresh(session, optimizer)


def _rescale(session: Session, optimizer: Optimizer, remedy: Remedy, step: int) -> Optimizer:
    """What feeds these activations is brought back to unit size: a norm's gain to one, a layer drawn anew."""
    modules = dict(session.model.named_modules())
    for site in remedy.places:
        name = _before(session, site)
        if name and "norm" in type(modules[name]).__name__.lower():
            modules[name].weight.fill_(1.0)
            if isinstance(getattr(modules[name], "bias", None), Tensor):
                modules[name].bias.zero_()
        elif name:
            _redraw(session, (name,), 1.0, step)
    for name, p in session.model.named_parameters():  # the gates of a recurrence or of a gated unit
        if name.startswith(("core.bias", "gates.")) and name.endswith(("bias", "bias_ih_l0", "bias_hh_l0")):
            p.zero_()
    session.model_edits = {}
    return _fresh(session, optimizer)


def _queries(session: Session, optimizer: Optimizer, remedy: Remedy, step: int) -> Optimizer:
    g = torch.Generator().manual_seed(step)
    for name, m in session.model.named_modules():
        if name.endswith("qkv") and isinstance(m.weight, Tensor):
            two = 2 * (m.weight.shape[0] // 3)
            part = m.weight[:two].clone()
            _drawn_anew(part, 0.6, g)
            m.weight[:two] = part
        elif name.endswith(("q_proj", "k_proj")) and isinstance(m.weight, Tensor):
            _drawn_anew(m.weight, 0.6, g)
    session.model_edits = {}
    return _fresh(session, optimizer)


def _experts(session: Session, optimizer: Optimizer, remedy: Remedy, step: int) -> Optimizer:
    session.balance = remedy.amount or 0.05
    for name, m in session.model.named_modules():
        if name.endswith("router") and hasattr(m, "reset_parameters"):
            m.reset_parameters()
    return _fresh(session, optimizer)


def _centre(session: Session, optimizer: Optimizer, remedy: Remedy, step: int) -> Optimizer:
    for m in session.model.modules():
        if isinstance(m, nn.Embedding):
            m.weight.sub_(m.weight.mean(0, keepdim=True))
    return _fresh(session, optimizer)


def _stop(session: Session, optimizer: Optimizer, remedy: Remedy, step: int) -> Optimizer:
    session.schedule = lambda at: 0.0
    session.weight_decay = 0.0
    return session.make_optimizer()


TREATMENTS: dict[str, Treatment] = {
    "zero_grad": _zero_grad,
    "train_mode": _train_mode,
    "add_parameters": _add,
    "attach": _attach,
    "unfreeze": _unfreeze,
    "negate_loss": _negate,
    "one_softmax": _one_softmax,
    "mean_loss": _mean,
    "scale_accumulation": _accumulate,
    "drop_not_finite": _finite,
    "normalise_input": _normalise,
    "clip_input": _clip_input,
    "repair_data": _repair,
    "loss_scale": _scale,
    "rate": _rate,
    "epsilon": _epsilon,
    "restart_rate": _restart,
    "restart_momentum": _momentum,
    "constant_rate": _constant,
    "decay": _decay,
    "clip": _clip,
    "reinitialise": _reinitialise,
    "balance": _balance,
    "revive_units": _revive,
    "rescale_inputs": _rescale,
    "rescale_queries": _queries,
    "balance_experts": _experts,
    "centre_embeddings": _centre,
    "stop": _stop,
}
