"""One traced pass at the level of aten: every call is met, whoever made it (torch.where, masks, a custom function).

Values are numbered by tensor object and moment. Tensors are kept alive until the pass ends, so that memory that was
freed and taken again is never mistaken for the same tensor.
"""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from netvitals.anatomy.ir import Kind, Line, Operation, Slot, Source, Value, replaced, tensors_in

# pointwise in their first tensor, though torch does not tag them so
_POINTWISE = frozenset(
    [
        "_prelu_kernel",
        "hardswish",
        "hardswish_",
        "threshold_",
        "rrelu_with_noise_",
        "log_sigmoid_forward",
        "special_erf",
        "special_erfc",
        "special_expit",
        "rrelu_with_noise",
        "_to_copy",
        "clone",
        "alias",
        "detach",
        "lift_fresh",
        "special_log1p",
        "special_expm1",
        "fill",
        "zeros_like",
        "ones_like",
    ]
)
_LAYERS = frozenset(
    [
        "mm",
        "addmm",
        "bmm",
        "baddbmm",
        "matmul",
        "linear",
        "convolution",
        "_convolution",
        "mv",
        "addmv",
        "dot",
        "embedding",
        "einsum",
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_attention_math",
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_fused_attention_overrideable",
        "_addmm_activation",
        "_grouped_mm",
        "mkldnn_rnn_layer",
    ]
)
_NORMS = frozenset(
    [
        "native_layer_norm",
        "native_batch_norm",
        "_native_batch_norm_legit",
        "_native_batch_norm_legit_no_training",
        "native_group_norm",
        "_fused_rms_norm",
        "cudnn_batch_norm",
        "batch_norm_with_update",
        "_batch_norm_with_update",
        "_batch_norm_no_update",
    ]
)
_RANDOM = frozenset(
    [
        "native_dropout",
        "bernoulli",
        "bernoulli_",
        "rand",
        "randn",
        "rand_like",
        "randn_like",
        "normal",
        "normal_",
        "uniform_",
    ]
)
_VIEWS = frozenset({"_unsafe_view", "unsafe_split", "unsafe_split_with_sizes", "_reshape_copy"})
_FRAMES = (os.path.dirname(torch.__file__), os.path.dirname(os.path.dirname(__file__)))


def kind_of(func: Any) -> Kind:
    """What an aten operator does to the elements of its input."""
    name = func._schema.name.removeprefix("aten::")
    if torch.Tag.pointwise in func.tags or name in _POINTWISE:
        return "random" if torch.Tag.nondeterministic_seeded in func.tags and name not in _POINTWISE else "pointwise"
    if name in _LAYERS:
        return "layer"
    if name in _NORMS:
        return "norm"
    if name in _RANDOM or torch.Tag.nondeterministic_seeded in func.tags:
        return "random"
    return "view" if func.is_view or name in _VIEWS else "other"


class Following(TorchDispatchMode):
    """A dispatch mode that knows which module runs, and in which of its calls."""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Compiled code inside a pass stays compiled."""
        return True

    def __init__(self) -> None:
        super().__init__()
        self.running: list[tuple[str, int]] = [("", 1)]
        self.calls: dict[str, int] = {}

    @contextmanager
    def following(self, model: nn.Module) -> Iterator[None]:
        """Inside the block the modules of the model are followed, and the mode is on."""
        with ExitStack() as stack:
            for name, module in model.named_modules():
                if name and not isinstance(module, torch.jit.ScriptModule):  # which takes no hooks
                    begins, ends = self._hooks(name)
                    stack.callback(module.register_forward_pre_hook(begins).remove)
                    stack.callback(module.register_forward_hook(ends, always_call=True).remove)
            with self:
                yield

    def _hooks(self, name: str) -> tuple[Callable[..., None], Callable[..., None]]:
        def begins(*_: Any) -> None:
            self.calls[name] = self.calls.get(name, 0) + 1
            self.running.append((name, self.calls[name]))

        def ends(*_: Any) -> None:
            self.running.pop()

        return begins, ends


class Shapes(Following):
    """Records only the names of aten calls and the shapes that they make."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[tuple[tuple[str, int, str], tuple[tuple[int, ...], ...]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        shapes = tuple(tuple(t.shape) for t in tensors_in(out))
        self.made.append(((*self.running[-1], func._schema.name.removeprefix("aten::")), shapes))
        return out


class Tracer(Following):
    """Records every aten call inside the block; ``values`` and ``operations`` are the trace."""

    def __init__(self, model: nn.Module, inputs: dict[str, Tensor]) -> None:
        super().__init__()
        self.values: list[Value] = []
        self.operations: list[Operation] = []
        self.tensors: list[Tensor] = []  # by value
        self._known: dict[int, int] = {}  # id of a tensor that is kept alive → value
        self._aliases: dict[int, list[Tensor]] = {}  # storage → tensors that lie in it
        self._kept: list[Tensor] = []
        self._model = model
        for name, tensor in inputs.items():
            self._new(tensor, "input", name)
        for name, p in model.named_parameters():
            self._new(p, "parameter", name)
        for name, b in model.named_buffers():
            self._new(b, "buffer", name)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        read: list[int] = []

        def slot(tensor: Tensor) -> Slot:
            read.append(self.value_of(tensor))
            return Slot(read[-1])

        slots = replaced((args, kwargs), Tensor, slot)
        if func._schema.is_mutable:  # what is overwritten is kept for those who replay what came before
            for tensor, argument in zip(args, func._schema.arguments):
                if isinstance(tensor, Tensor) and argument.alias_info is not None and argument.alias_info.is_write:
                    self.tensors[self.value_of(tensor)] = tensor.detach().clone()
        out = func(*args, **kwargs)
        index = len(self.operations)
        made = []
        for tensor in tensors_in(out):
            known = id(tensor) in self._known and not func._schema.is_mutable
            made.append(self.value_of(tensor) if known else self._new(tensor, "operation", producer=index))
        if func._schema.is_mutable:
            made += self._spread(out, index)
        module, call = self.running[-1]
        self.operations.append(
            Operation(
                index=index,
                name=func._schema.name.removeprefix("aten::"),
                kind=kind_of(func),
                inputs=tuple(read),
                outputs=tuple(made),
                module=module,
                call=call,
                line=_line(),
                func=func,
                args=slots[0],
                kwargs=slots[1],
            )
        )
        return out

    def value_of(self, tensor: Tensor) -> int:
        """The number of what a tensor holds now; one that was never seen is a constant."""
        found = self._known.get(id(tensor))
        return self._new(tensor, "constant") if found is None else found

    def _new(self, tensor: Tensor, source: Source, name: str = "", producer: int = -1) -> int:
        index = len(self.values)
        self.values.append(
            Value(
                index=index,
                shape=tuple(tensor.shape),
                dtype=str(tensor.dtype).removeprefix("torch."),
                source=source,
                name=name,
                producer=producer,
            )
        )
        self.tensors.append(tensor.detach() if source == "operation" else tensor)
        if id(tensor) not in self._known:
            self._kept.append(tensor)
            self._aliases.setdefault(storage_of(tensor), []).append(tensor)
        self._known[id(tensor)] = index
        return index

    def _spread(self, out: Any, index: int) -> list[int]:
        """Other tensors in the same memory hold something new as well."""
        made = []
        written = list(tensors_in(out))
        for tensor in written:
            for alias in self._aliases.get(storage_of(tensor), ()):
                if all(alias is not t for t in written) and self.values[self._known[id(alias)]].source != "parameter":
                    made.append(self._new(alias, "operation", producer=index))
        return made


def storage_of(tensor: Tensor) -> int:
    """What two tensors share that share memory."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):  # sparse and the like
        return id(tensor)


def _line() -> Line | None:
    """The innermost line that is neither torch's nor ours."""
    frame = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_FRAMES) and not file.startswith("<frozen"):
            return Line(file=file, number=frame.f_lineno, text=linecache.getline(file, frame.f_lineno).strip())
        frame = frame.f_back  # type: ignore[assignment]
    return None
