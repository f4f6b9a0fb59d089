"""What is about to be trained: models, losses and optimizers in any of the forms a loop has, and copies of them."""

from __future__ import annotations

import copy
import functools
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from netvitals.capture import main_output, mapped, resolve_loss, task_of, tensors, uncompiled
from netvitals.integrations import network
from netvitals.watching import together

RATE = 1e-3  # of Adam, where no optimizer is given


@dataclass(frozen=True)
class Setup:
    """One or several losses of one or several models, each with the optimizer that steps on it.

    Attributes:
        models: what the user gave: a module, or a list or dict of modules.
        root: one module with all of them inside.
        losses: functions of (models, batch), each returning one number as a tensor.
        optimizers: one for each loss, or several that step on the only one.
        given: whether the optimizers are the user's.
    """

    models: Any
    root: nn.Module
    losses: tuple[Any, ...]
    optimizers: tuple[Optimizer, ...]
    given: bool

    @property
    def several(self) -> bool:
        """Several models, or several losses."""
        return not isinstance(self.models, nn.Module) or len(self.losses) > 1

    @property
    def roots(self) -> list[nn.Module]:
        """The modules that are called with the inputs."""
        if not isinstance(self.models, nn.Module):
            return list(self.root.children())
        return [network(self.root)] if is_lightning(self.root) else [self.root]

    def copy(self) -> Setup:
        """Models, losses and optimizers copied together, so that they refer to each other as before."""
        memo: dict[int, Any] = {}
        trainer = getattr(self.models, "_trainer", None)
        try:
            models, optimizers = copies_of(self.models, self.optimizers, memo)
            losses = tuple(_copied(loss, memo) for loss in self.losses)
        except Exception as error:
            raise ValueError(
                f"preflight works on a copy of the model, but {type(self.root).__name__} cannot be copied: "
                f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}. Give a model that "
                "copy.deepcopy can copy, without attributes such as locks, open files or tensors with a graph"
            ) from error
        if trainer is not None and is_lightning(models):
            vars(models)["_trainer"] = trainer  # a LightningModule is copied without it
        root = together(models)
        if not any(m.training for m in root.modules()):
            root.train()
        return Setup(models, root, losses, optimizers, self.given)

    def loss(self, batch: Any, which: int = 0) -> Tensor:
        """One of the losses on a batch."""
        found = self.losses[which](self.models, batch)
        if not isinstance(found, Tensor) or found.numel() != 1:
            raise TypeError(f"the loss must be one number as a tensor, got {_what(found)}")
        return found.reshape(()) if found.ndim else found  # no operation of ours in its graph

    def steppers(self, which: int) -> tuple[Optimizer, ...]:
        """The optimizers that step on a loss."""
        return self.optimizers if len(self.losses) == 1 else self.optimizers[which : which + 1]

    def step(self, batch: Any, after: Callable[[Tensor], None] | None = None) -> float:
        """One training step, every loss in its turn; the sum of the losses, NaN where one is not finite."""
        total = 0.0
        for which in range(len(self.losses)):
            steppers = self.steppers(which)
            one = needs_closure(steppers)
            if one is not None:
                total += float(self._closed(one, batch, which).detach())
                continue
            for optimizer in steppers:
                optimizer.zero_grad()
            loss = self.loss(batch, which)
            total += float(loss.detach())
            if after is not None:
                after(loss)
            if loss.requires_grad:
                loss.backward()
            for optimizer in steppers:
                optimizer.step()
        return total

    def _closed(self, optimizer: Optimizer, batch: Any, which: int) -> Any:
        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = self.loss(batch, which)
            loss.backward()
            return loss

        return optimizer.step(closure)  # type: ignore[arg-type]


def copies_of(models: Any, optimizers: Any, memo: dict[int, Any]) -> tuple[Any, Any]:
    """Deep copies of models and optimizers; an optimizer's own copy leaves its further attributes out."""
    made = copy.deepcopy((models, optimizers), memo)
    for old, new in zip(optimizers, made[1]):
        for name, value in vars(old).items():
            if name not in vars(new) and not callable(value):  # a scheduler's wrapper of step holds the old optimizer
                setattr(new, name, copy.deepcopy(value, memo))
    return made


def needs_closure(optimizers: Sequence[Optimizer]) -> Optimizer | None:
    """The only optimizer, if it evaluates the loss itself, as L-BFGS does."""
    if len(optimizers) != 1:
        return None
    closure = inspect.signature(inspect.unwrap(type(optimizers[0]).step)).parameters.get("closure")
    return optimizers[0] if closure is not None and closure.default is closure.empty else None


def setup_of(model: Any, loss_fn: Any, optimizer: Any, forward: Any) -> Setup:
    """Take the arguments of :func:`netvitals.preflight` apart."""
    root = together(model, "preflight")
    if not isinstance(root, nn.Module):
        raise TypeError(
            f"preflight needs a torch.nn.Module, or a list or dict of them, got a {type(model).__name__}; the order "
            "of arguments is (model, loss_fn, loader, optimizer)"
        )
    if not any(p.requires_grad for p in root.parameters()) and not optimizer:
        raise ValueError(
            f"{type(model).__name__} has no parameter with requires_grad=True, so there is nothing to train"
        )
    several = not isinstance(model, nn.Module)
    if not several:
        model = root = uncompiled(root)
    elif isinstance(model, Mapping):
        model = dict(zip(model, root.children()))
    else:
        model = list(root.children())
    if optimizer is None and not several and is_lightning(root):
        optimizer = _configured(root)
    given = _optimizers(optimizer)
    losses: tuple[Any, ...]
    if several or isinstance(loss_fn, list | tuple):
        losses = tuple(loss_fn) if isinstance(loss_fn, list | tuple) else (loss_fn,)
        if not all(callable(one) for one in losses) or not losses:
            raise TypeError(
                "with several models or losses, loss_fn must be a function of (models, batch) or a list with one "
                f"such function for each optimizer; got {_what(loss_fn)}"
            )
        if len(losses) > 1 and given and len(given) != len(losses):
            raise ValueError(f"{len(losses)} losses need {len(losses)} optimizers, one for each; got {len(given)}")
        if len(losses) > 1 and not given:
            raise ValueError(f"{len(losses)} losses need {len(losses)} optimizers, one for each; give optimizer=[...]")
    elif loss_fn is None and forward is None and is_lightning(root):
        losses = (_training_step,)
    else:
        losses = (_Supervised(resolve_loss(loss_fn), forward),)
    made = given or (torch.optim.Adam([p for p in root.parameters() if p.requires_grad], lr=RATE),)
    return Setup(model, root, losses, made, bool(given))


class _Supervised:
    """The loss of one model on a batch, as :func:`netvitals.capture.task_of` takes it apart."""

    def __init__(self, loss_fn: Any, forward: Any) -> None:
        self.loss_fn, self.forward = loss_fn, forward

    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        task = task_of(model, self.loss_fn, batch, self.forward)
        return task.loss(task.forward())


def is_lightning(model: nn.Module) -> bool:
    """Whether ``model`` is a LightningModule, or looks like one."""
    return callable(getattr(model, "training_step", None)) and callable(getattr(model, "configure_optimizers", None))


def _training_step(model: Any, batch: Any) -> Tensor:
    """The loss of a LightningModule; what it logs goes nowhere."""
    for name in ("log", "log_dict"):
        vars(model)[name] = lambda *_, **__: None
    try:
        out = model.training_step(batch, 0)
    finally:
        for name in ("log", "log_dict"):
            vars(model).pop(name, None)
    loss = out["loss"] if isinstance(out, Mapping) else out
    if not isinstance(loss, Tensor):
        raise TypeError(
            f"training_step returned {_what(loss)} instead of a loss; with manual optimization, give the network, "
            "loss_fn and optimizer to preflight"
        )
    return loss


def _configured(model: Any) -> Any:
    found = model.configure_optimizers()
    if isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], list | tuple):
        found = found[0]
    if isinstance(found, Mapping):
        found = found["optimizer"]
    if isinstance(found, list | tuple):
        found = [one["optimizer"] if isinstance(one, Mapping) else one for one in found]
    return found


def _optimizers(optimizer: Any) -> tuple[Optimizer, ...]:
    if optimizer is None:
        return ()
    many = optimizer if isinstance(optimizer, list | tuple) else (optimizer,)
    many = tuple(getattr(one, "optimizer", one) if not isinstance(one, Optimizer) else one for one in many)
    wrong = next((one for one in many if not isinstance(one, Optimizer)), None)
    if wrong is not None:
        raise TypeError(f"optimizer= must be a torch.optim.Optimizer or a list of them, got {_what(wrong)}")
    return many


def _what(value: Any) -> str:
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"


# ---------------------------------------------------------------- functions that hold modules


def modules_in(function: Any) -> list[nn.Module]:
    """Modules that a function holds: in its closure, its globals, a partial, or the object it belongs to."""
    out: list[nn.Module] = []
    for value in _held(function).values():
        if isinstance(value, nn.Module):
            out.append(value)
        elif isinstance(value, types.FunctionType | types.MethodType | functools.partial | _Supervised):
            out += modules_in(value)
    return out


def _held(function: Any) -> dict[str, Any]:
    if isinstance(function, nn.Module):
        return {"self": function}
    if isinstance(function, _Supervised):
        return vars(function)
    if isinstance(function, functools.partial):
        return {"func": function.func, **function.keywords, **{str(i): a for i, a in enumerate(function.args)}}
    if isinstance(function, types.MethodType):
        return {"self": function.__self__}
    if not isinstance(function, types.FunctionType):
        return {}
    cells = zip(function.__code__.co_freevars, function.__closure__ or ())
    inside = {name: cell.cell_contents for name, cell in cells if not _empty(cell)}
    used = {n: function.__globals__[n] for n in function.__code__.co_names if n in function.__globals__}
    return {**{n: v for n, v in used.items() if isinstance(v, nn.Module)}, **inside}


def _empty(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return True
    return False


def _copied(function: Any, memo: dict[int, Any]) -> Any:
    """A copy of a function that refers to the copies of the modules it holds."""
    if isinstance(function, _Supervised):
        return _Supervised(_copied(function.loss_fn, memo), _copied(function.forward, memo))
    if isinstance(function, functools.partial):
        args = [_copied(a, memo) for a in function.args]
        return functools.partial(_copied(function.func, memo), *args, **function.keywords)
    if isinstance(function, types.MethodType):
        return types.MethodType(function.__func__, copy.deepcopy(function.__self__, memo))
    if not isinstance(function, types.FunctionType):
        return copy.deepcopy(function, memo) if isinstance(function, nn.Module) else function
    cells = []
    for cell in function.__closure__ or ():
        value = None if _empty(cell) else cell.cell_contents
        if any(isinstance(v, nn.Module) for v in _values(value)):
            cells.append(types.CellType(copy.deepcopy(value, memo)))
        else:
            cells.append(cell)
    names = [n for n in function.__code__.co_names if isinstance(function.__globals__.get(n), nn.Module)]
    scope = function.__globals__
    if names:
        scope = {**scope, **{n: copy.deepcopy(scope[n], memo) for n in names}}
    made = types.FunctionType(function.__code__, scope, function.__name__, function.__defaults__, tuple(cells))
    made.__kwdefaults__, made.__module__ = function.__kwdefaults__, function.__module__
    return made


def _values(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, list | tuple) else [value]


# ---------------------------------------------------------------- batches


def examples_of(batch: Any) -> int:
    """The size of the first dimension of the first tensor of a batch; 0 where there is none."""
    return next((len(t) for t in tensors(batch) if t.ndim), 0)


def moved_to(batch: Any, root: nn.Module) -> Any:
    """A batch on the device of the model."""
    device = next((p.device for p in root.parameters()), torch.device("cpu"))
    return mapped(batch, lambda t: t.to(device))


def parts_of(setup: Setup, batch: Any) -> tuple[list[Tensor], list[Tensor]]:
    """Input tensors and target tensors of a batch; with several models all count as inputs."""
    loss = setup.losses[0]
    if isinstance(loss, _Supervised) and loss.forward is None:
        task = task_of(setup.root, loss.loss_fn, batch)
        kwargs = {k: v for k, v in task.kwargs.items() if k != "labels"}
        labels = [v for k, v in task.kwargs.items() if k == "labels"]
        return list(tensors((task.args, kwargs))), list(tensors((task.targets, labels)))
    inputs = list(tensors(batch))
    return (inputs[:-1], inputs[-1:]) if len(inputs) > 1 else (inputs, [])


def output(setup: Setup, batch: Any) -> Tensor | None:
    """The main output of a single model on a batch, where it is one tensor."""
    loss = setup.losses[0]
    if setup.several or not isinstance(loss, _Supervised) or loss.forward is not None:
        return None
    found = main_output(task_of(setup.root, loss.loss_fn, batch).forward())
    return found if isinstance(found, Tensor) and found.is_floating_point() else None
