"""What a forward pass may change besides tensors: attributes of the user's modules, and the hooks that it calls.

Values are put back in place, so that whoever else holds the same list or generator sees it as it was.
"""

from __future__ import annotations

import random
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules import module as _module

LONG = 1000  # entries of a container beyond which only the container is kept, not what its entries hold
DEEP = 4  # containers within containers
TABLES = ("_parameters", "_buffers", "_modules")
HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
TENSOR_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")
GLOBAL_HOOKS = (
    "_global_forward_pre_hooks",
    "_global_forward_hooks",
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
)
# objects of these are no state of a model; some of them change in other threads
FOREIGN = frozenset(
    ("netvitals", "torch", "lightning", "pytorch_lightning", "transformers", "accelerate", "logging", "threading")
    + ("queue", "asyncio", "multiprocessing", "concurrent", "io", "_io", "weakref", "functools", "builtins")
)

Restore = Callable[[], None]


def keep_attributes(modules: Iterable[nn.Module]) -> list[Restore]:
    """Remember the Python state of modules; calling what is returned, last first, puts it back.

    Kept are numbers and names, and the contents of lists, dicts, sets, arrays, tensors, random generators and of plain
    objects that are attributes of a module.

    >>> class Counts(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.calls, self.seen = 0, []
    >>> net = Counts(); restore = keep_attributes([net])
    >>> net.calls += 1; net.seen.append(3)
    >>> for put_back in reversed(restore):
    ...     put_back()
    >>> net.calls, net.seen
    (0, [])
    """
    met: set[int] = set()
    restore: list[Restore] = []
    for module in modules:
        if isinstance(module, torch.jit.ScriptModule):
            continue
        own = vars(module)
        for table in TABLES:
            _keep_mapping(own[table], restore)
        _keep_mapping(own, restore)
        for key, value in own.items():
            if key not in TABLES and not key.endswith("_hooks"):
                _keep(value, restore, met, 0)
    return restore


def without_hooks(model: nn.Module) -> list[Restore]:
    """Take away the hooks of the user's own, so that a measurement calls none of them; torch's compute weights."""
    tables: list[MutableMapping[int, Any]] = [getattr(_module, name) for name in GLOBAL_HOOKS]
    for module in model.modules():
        tables += [t for t in (vars(module).get(name) for name in HOOKS) if t]
    for p in model.parameters():
        tables += [t for t in (getattr(p, name, None) for name in TENSOR_HOOKS) if t]
    restore: list[Restore] = []
    for table in tables:
        if any(not _is_needed(hook) for hook in table.values()):
            restore.append(_contents(table, OrderedDict(table)))
            for key in [key for key, hook in table.items() if not _is_needed(hook)]:
                del table[key]
    return restore


def _contents(table: MutableMapping[Any, Any], saved: MutableMapping[Any, Any]) -> Restore:
    def put_back() -> None:
        table.clear()
        table.update(saved)

    return put_back


def _is_needed(hook: Any) -> bool:
    """Whether a hook belongs to torch, or to a measurement that is under way; an armed watch is none."""
    kind = hook if isinstance(hook, types.FunctionType) else type(getattr(hook, "__self__", hook))
    owner = str(getattr(kind, "__module__", "")).partition(".")[0]
    return owner == "torch" or (owner == "netvitals" and not getattr(kind, "of_a_watch", False))


def _keep(value: Any, restore: list[Restore], met: set[int], depth: int) -> None:
    """Remember what ``value`` holds, where that can change."""
    if id(value) in met or depth > DEEP or isinstance(value, nn.Module | nn.Parameter | type | types.ModuleType):
        return
    met.add(id(value))
    if isinstance(value, Tensor):
        _keep_tensor(value, restore)
    elif isinstance(value, np.ndarray):
        if value.flags.writeable:
            restore.append(_array(value, value.copy()))
    elif isinstance(value, list | deque):
        restore.append(_sequence(value, list(value)))
        _keep_entries(value, restore, met, depth)
    elif isinstance(value, dict):
        _keep_mapping(value, restore)
        _keep_entries(value.values(), restore, met, depth)
    elif isinstance(value, set):
        restore.append(_set(value, set(value)))
    elif isinstance(value, tuple):
        _keep_entries(value, restore, met, depth)
    elif isinstance(value, random.Random):
        state = value.getstate()
        restore.append(lambda: value.setstate(state))
    elif isinstance(value, np.random.RandomState):
        old = value.get_state()
        restore.append(lambda: value.set_state(old))
    elif isinstance(value, np.random.Generator):
        bits, now = value.bit_generator, value.bit_generator.state
        restore.append(lambda: setattr(bits, "state", now))
    elif isinstance(value, torch.Generator):
        seed = value.get_state()
        restore.append(partial(_set_generator, value, seed))
    elif depth == 0 and hasattr(value, "__dict__") and type(value).__module__.partition(".")[0] not in FOREIGN:
        _keep_mapping(vars(value), restore)
        _keep_entries(vars(value).values(), restore, met, 1)


def _keep_entries(values: Iterable[Any], restore: list[Restore], met: set[int], depth: int) -> None:
    entries = list(values)
    if len(entries) <= LONG:
        for entry in entries:
            _keep(entry, restore, met, depth + 1)


def _keep_mapping(table: Any, restore: list[Restore]) -> None:
    saved = dict(table)

    def put_back() -> None:
        if len(table) != len(saved) or any(table.get(k, saved) is not v for k, v in saved.items()):
            table.clear()
            table.update(saved)

    restore.append(put_back)


def _keep_tensor(value: Tensor, restore: list[Restore]) -> None:
    if value.is_meta or value.is_inference() or value.layout is not torch.strided:
        return
    version, saved = value._version, value.detach().clone()

    def put_back() -> None:
        if value._version != version:
            with torch.no_grad():
                value.copy_(saved)

    restore.append(put_back)


def _set_generator(generator: torch.Generator, state: Tensor) -> None:
    generator.set_state(state)


def _array(value: np.ndarray, saved: np.ndarray) -> Restore:
    return lambda: value.__setitem__(..., saved)


def _sequence(value: Any, saved: list[Any]) -> Restore:
    def put_back() -> None:
        if len(value) != len(saved) or any(a is not b for a, b in zip(value, saved)):
            value.clear()
            value.extend(saved)

    return put_back


def _set(value: set[Any], saved: set[Any]) -> Restore:
    def put_back() -> None:
        if value != saved:
            value.clear()
            value.update(saved)

    return put_back


def tensors_of(modules: Iterable[nn.Module]) -> Iterator[tuple[nn.Module, str, Tensor]]:
    """Every buffer with the module that owns it."""
    for module in modules:
        for key, buffer in module._buffers.items():
            if buffer is not None:
                yield module, key, buffer
