"""The parts of a model: every module with its name and what it is to the engine."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from netvitals._device import random_state, set_random_state
from netvitals.capture.engine.roles import FUSED, REASONS, Role, is_compiled, may_change, role
from netvitals.capture.engine.schedule import warn
from netvitals.capture.shards import plain_name


@dataclass
class ModuleInfo:
    """One module of the model."""

    name: str
    role: Role
    replays: bool = False  # to be run again only with its random numbers and buffers
    in_place: bool = False
    refused: bool = False  # its author says that it is no activation
    trains: bool = False  # has parameters: a block may hand on the residual stream, a rotary code does not


class Modules:
    """Surveys a model. What was learned of a module stays known; names are read anew, a user may change the model."""

    def __init__(self, model: nn.Module, cannot_see: Callable[[str, str], None]) -> None:
        self._model = model
        self._cannot_see = cannot_see
        self._known: weakref.WeakKeyDictionary[nn.Module, ModuleInfo] = weakref.WeakKeyDictionary()
        self._warned = False
        self.modules: dict[str, nn.Module] = {}

    def survey(self) -> dict[nn.Module, ModuleInfo]:
        """All modules but those inside compiled ones, in order."""
        parts: dict[nn.Module, ModuleInfo] = {}
        closed: list[str] = []
        self.modules = dict(self._model.named_modules())
        for raw, module in self.modules.items():
            if type(module).__name__ == "FullyShardedDataParallel":
                continue  # a wrapper: what is in it has its name
            name = plain_name(raw)
            if closed and any(name.startswith(prefix) for prefix in closed):
                continue
            module_info = self._known.get(module)
            if module_info is None or is_compiled(module) != (module_info.role == "compiled"):
                module_info = self._known[module] = self._met(name, module, role(module))
            module_info.name = name
            parts[module] = module_info
            if module_info.role == "compiled":
                closed.append(f"{name}." if name else "")
        return parts

    def _met(self, name: str, module: nn.Module, is_a: Role) -> ModuleInfo:
        module_info = ModuleInfo(name, is_a, in_place=bool(getattr(module, "inplace", False)))
        module_info.trains = any(True for _ in module.parameters())
        module_info.replays = is_a == "activation" and may_change(module)
        module_info.refused = getattr(module, "elementwise", None) is False
        scripted = isinstance(module, torch.jit.ScriptModule)
        if is_a in REASONS:
            self._cannot_see(name or "model", REASONS["scripted" if scripted else is_a])
        if is_a == "compiled" and not scripted and not self._warned:
            self._warned = True
            warn(
                f"{name or 'the model'} is compiled, so its inside cannot be measured: {REASONS['compiled']}",
                "compiled-part",
            )
        return module_info

    def fused(self) -> tuple[str, ...]:
        """Names of the modules that run as one kernel as the model stands now, and must not have hooks."""
        if not torch.backends.mha.get_fastpath_enabled():
            return ()
        found = [plain_name(name) for name, m in self.modules.items() if isinstance(m, FUSED) and not m.training]
        for name in found:
            self._cannot_see(name or "model", REASONS["fused"])
        return tuple(found)


class ModuleReplay:
    """An activation that may draw random numbers or keep buffers, as it was when this was made.

    Make it right before the activation runs. Calling it gives the output of that run for any input, from the same
    generator state and buffers, and leaves generator and buffers as they are at the time of the call.
    """

    def __init__(
        self, activation: nn.Module | Callable[[Tensor], Tensor], device: torch.device, *, in_place: bool = False
    ) -> None:
        module = activation if isinstance(activation, nn.Module) else None
        self._call = activation if module is None else module.forward
        self._device = device
        self._in_place = in_place
        self._random = random_state(device)
        self._buffers = [
            (m, key, b.detach().clone())
            for m in (() if module is None else module.modules())
            for key, b in m._buffers.items()
            if b is not None
        ]

    def __call__(self, x: Tensor) -> Tensor:
        now = random_state(self._device)
        mine = [(m, key, m._buffers[key]) for m, key, _ in self._buffers]
        try:
            set_random_state(self._device, self._random)
            for module, key, value in self._buffers:
                module._buffers[key] = value.clone()
            return self._call(x.clone() if self._in_place else x)
        finally:
            for module, key, buffer in mine:
                module._buffers[key] = buffer
            set_random_state(self._device, now)
