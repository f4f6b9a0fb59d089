"""The arguments of a watch, checked before anything is touched: bad input gets a sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import Optimizer

from netvitals._help import hint
from netvitals.capture import check_finite, check_values, unwrapped, warn

if TYPE_CHECKING:
    from netvitals.forecasts import Lookahead
    from netvitals.preflights import Preflight


class Together(nn.ModuleDict):
    """Several models that are watched together; the models themselves do not know of it.

    >>> both = Together({"encoder": nn.Linear(2, 2), "decoder": nn.Linear(2, 1)})
    >>> [name for name, _ in both.named_parameters()]
    ['encoder.weight', 'encoder.bias', 'decoder.weight', 'decoder.bias']
    """


def together(model: Any, who: str = "watch") -> Any:
    """One model for several, named by their place in a list or as a dict names them; one model as it is."""
    if isinstance(model, nn.Module) or not isinstance(model, list | tuple | Mapping):
        return model
    parts = dict(model) if isinstance(model, Mapping) else {str(i): m for i, m in enumerate(model)}
    wrong = [type(m).__name__ for m in parts.values() if not isinstance(m, nn.Module)]
    if wrong or not parts:
        what = f"a {wrong[0]} among them" if wrong else "none"
        raise TypeError(f"{who} needs modules of type torch.nn.Module, got {what}")
    return Together({name: unwrapped(m) for name, m in parts.items()})


def before_training(model: Any, optimizer: Any, asked: Any) -> Preflight | None:
    """The preflight that was asked for with a loader, or with ``(loss_fn, loader)``; its failures are warned of."""
    if asked is None:
        return None
    from netvitals.preflights import preflight

    pair = isinstance(asked, tuple) and len(asked) == 2 and (asked[0] is None or isinstance(asked[0], str | list))
    pair = pair or (isinstance(asked, tuple) and len(asked) == 2 and callable(asked[0]))
    loss_fn, loader = asked if pair else (None, asked)
    found = preflight(model, loss_fn, loader, optimizer)
    if found.failed:
        what = "; ".join(f"{check.name}: {check.measured}" for check in found.failed[:3])
        warn(f"preflight found {len(found.failed)} failed checks before training: {what}", "preflight-failed")
    return found


def check_model(model: Any, every: Any) -> None:
    """A model that can be trained, and a number of steps."""
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"watch needs a torch.nn.Module, got a {type(model).__name__}; the order of arguments is (model, optimizer)"
        )
    if not any(True for _ in model.parameters()):
        raise ValueError(
            f"{type(model).__name__} has no parameters, so there is no training to watch {hint('no-parameters')}"
        )
    check_values(model)
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise ValueError(f"every= must be a whole number of steps, 1 or more, got {every!r}")


def check_total(total_steps: Any) -> None:
    """A number of steps that training can have, or None."""
    whole = isinstance(total_steps, int) and not isinstance(total_steps, bool)
    if total_steps is not None and not (whole and total_steps >= 1):
        raise ValueError(f"total_steps= must be a whole number of steps, 1 or more, got {total_steps!r}")


def check_resume(run: Any, resume: Any, overwrite: Any) -> None:
    """What is to happen to a run that is there already."""
    if not isinstance(resume, int) or resume < 0:
        raise ValueError(f"resume= must be True, False or the step at which to continue, got {resume!r}")
    if resume is not False and run is None:
        raise ValueError("resume= needs run=, the path of the run to continue")
    if overwrite and resume is not False:
        raise ValueError("resume=True continues an existing run, but overwrite=True deletes it: give only one of them")


def checked_probe(probe: Any) -> tuple[Any, Any, Callable[..., Tensor] | None] | None:
    """The probe of a watch as (x, y, loss function or None)."""
    if probe is None:
        return None
    if not isinstance(probe, tuple | list) or len(probe) not in (2, 3) or (len(probe) == 3 and not callable(probe[2])):
        raise TypeError("probe= must be (x, y) or (x, y, loss_fn) with a callable loss_fn")
    check_finite(probe[0], "the input of the probe")
    return probe[0], probe[1], probe[2] if len(probe) == 3 else None


def checked_lookahead(lookahead: Any, probe: tuple[Any, Any, Any] | None, forecasts: bool) -> Lookahead | None:
    """What danger is looked ahead with; None where it is not."""
    if lookahead is False or lookahead is None:
        return None
    if not forecasts:
        raise ValueError("lookahead= needs forecasts, but forecasts=False was given: leave out one of the two")
    from netvitals.forecasts import Lookahead

    if isinstance(lookahead, Lookahead):
        return lookahead
    if lookahead is not True:
        raise TypeError(f"lookahead= must be True or a netvitals.forecasts.Lookahead, got a {type(lookahead).__name__}")
    if probe is None or probe[2] is None:
        raise ValueError(
            "lookahead=True trains a copy on a fixed batch, but none was given: pass probe=(x, y, loss_fn) to watch, "
            f"or a Lookahead with batches {hint('needs-probe')}"
        )
    return Lookahead(batches=[probe[:2]], loss_fn=probe[2])


def checked_parameters(parameters: Any, model: nn.Module) -> dict[str, Any]:
    """The tensors that are trained in the place of a model's own, by name."""
    if parameters is None:
        return {}
    if not isinstance(parameters, Mapping):
        raise TypeError(f"parameters= must be a dict from names to tensors, got a {type(parameters).__name__}")
    own = dict(model.named_parameters())
    for name, p in parameters.items():
        if name not in own:
            raise ValueError(
                f"parameters= has the entry {name!r}, but {type(model).__name__} has no parameter of that name"
            )
        if not isinstance(p, Tensor) or p.shape != own[name].shape:
            got = f"shape {tuple(p.shape)}" if isinstance(p, Tensor) else f"a {type(p).__name__}"
            raise ValueError(
                f"parameters[{name!r}] must have shape {tuple(own[name].shape)}, like the model's parameter, got {got}"
            )
    return dict(parameters)


FOREIGN = "holds no parameter of the watched model"


def checked_optimizers(
    optimizer: Any, parameters: Mapping[str, nn.Parameter]
) -> tuple[list[Optimizer], list[Optimizer]]:
    """The optimizers of a watch, taken out of the wrappers of a trainer, and those that hold nothing of its model."""
    if optimizer is None:
        return [], []
    found: list[Optimizer] = []
    foreign: list[Optimizer] = []
    mine = {id(p) for p in parameters.values()}
    several = [optimizer] if _is_optimizer(optimizer) or not isinstance(optimizer, Iterable) else list(optimizer)
    for given in several:
        if isinstance(given, LRScheduler):
            raise TypeError(
                f"optimizer= is a {type(given).__name__}: pass the optimizer as optimizer= and the scheduler as "
                "scheduler="
            )
        one = inner_optimizer(given)
        if not isinstance(one, Optimizer):
            raise TypeError(f"optimizer= must be a torch.optim.Optimizer or a list of them, got a {type(one).__name__}")
        if any(id(p) in mine for group in one.param_groups for p in group["params"]):
            found.append(one)
        else:
            foreign.append(one)
    if foreign and not found:  # a functional training, or a mistake that the checks of the loop name
        warn(
            f"the optimizer {type(foreign[0]).__name__} {FOREIGN}; with torch.func.functional_call, use "
            "watch(parameters=params)",
            "foreign-optimizer",
        )
    return found, foreign


def inner_optimizer(one: Any) -> Any:
    """The optimizer of torch's inside wrappers of accelerate, Lightning, Fabric and others with ``.optimizer``.

    A wrapper may pass for an optimizer; one that takes no hooks was never made as such.
    """
    for _ in range(8):
        if isinstance(one, Optimizer) and "_optimizer_step_post_hooks" in vars(one):
            return one
        inside = getattr(one, "optimizer", None)
        if inside is None or inside is one:
            return one
        one = inside
    return one


def _is_optimizer(one: Any) -> bool:
    return isinstance(one, Optimizer) or hasattr(one, "optimizer")
