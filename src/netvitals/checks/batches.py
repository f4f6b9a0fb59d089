"""Passes and batches: modes, inputs beside labels, and the extra passes that ask what an output depends on."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn

from netvitals.checks.check import Record
from netvitals.checks.dependencies import dependencies

NORMS = nn.modules.batchnorm._BatchNorm
DROPOUT = nn.modules.dropout._DropoutNd
MODAL = (nn.modules.batchnorm._NormBase, nn.modules.dropout._DropoutNd)  # layers that know train from eval mode
KEPT = 4_000_000  # numbers of a batch that is kept, and fewer after the first steps
KEPT_LATER = 100_000
OFF = 20.0  # times; evaluation inputs beyond this are on another scale


class BatchChecks:
    """Watches what goes into the model, in training and in evaluation."""

    def __init__(self, record: Record, model: nn.Module) -> None:
        self._record, self._model = record, model
        self.size = 0  # examples of the first batch
        self._batch: tuple[nn.Module, tuple[Any, ...], dict[str, Any]] | None = None
        self._first: Tensor | None = None  # the first batch
        self._target: Tensor | None = None
        self._trained: set[int] = set()
        self._evaluations = 0  # passes in a row without gradient
        self._was_training = False
        self._depended = False
        self._features: tuple[Tensor, Tensor] | None = None
        self._largest: dict[int, float] = {}  # root → largest entry of its first training batch
        self._spectral = [
            n for n, m in model.named_modules() if type(m).__name__ == "_SpectralNorm" or hasattr(m, "weight_u")
        ]
        self.teachers = _teachers(model)
        self._weights = {n: _sum_of(m) for n, m in self.teachers.items()}
        self._copied = 0.0  # share of the labels that are the input token at the same place
        self._padded: list[tuple[int, float]] = []  # of each batch: the last id of its rows, share of labels that it is
        self._noisy: set[str] = set()  # frozen modules that ran without gradient and with dropout

    # ------------------------------------------------------------------ passes

    def entered(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], grad: bool, listening: bool
    ) -> None:
        """A root is called; the first steps are still on (``listening``), or only evaluations are of interest."""
        if grad:
            self._evaluations = 0
            self._trained.add(id(module))
            if listening:
                self._training_pass(module, args, kwargs)
            if listening or self._was_training:
                self._mode(module)
            return
        if id(module) not in self._trained:
            return  # a teacher or target network
        self._evaluations += 1
        if self._evaluations == 2 or (self._evaluations == 1 and self._larger(args)):
            self._record.ask("train mode in evaluation")
            wrong = [
                n for n, m in module.named_modules() if m.training and isinstance(m, MODAL) and getattr(m, "p", 1) > 0
            ]
            if wrong:
                self._record.fail("train mode in evaluation", layers=wrong[:8], count=len(wrong))
        if self._evaluations <= 2:
            self._scale(module, args)

    def teacher_entered(self, name: str) -> None:
        """A frozen module is called."""
        active = [m for m in self.teachers[name].modules() if isinstance(m, DROPOUT) and m.training and m.p > 0]
        if not torch.is_grad_enabled() and active:
            self._noisy.add(name)

    def _larger(self, args: tuple[Any, ...]) -> bool:
        n = next((len(a) for a in args if isinstance(a, Tensor) and a.ndim), 0)
        return bool(self.size) and n > 1.5 * self.size

    def _training_pass(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor) and a.ndim]
        if not tensors:
            return
        if self._first is None:
            self._first, self.size = tensors[0].detach().clone(), len(tensors[0])
        if id(module) not in self._largest:
            self._largest[id(module)] = _largest(tensors[0])
            self._scrambled(tensors[0])
        self._batch = None
        if sum(t.numel() for t in tensors) < (KEPT if self._record.step < 4 else KEPT_LATER):
            self._batch = (module, tuple(map(_copy, args)), {k: _copy(v) for k, v in kwargs.items()})

    def _mode(self, module: nn.Module) -> None:
        layers = [m for m in module.modules() if isinstance(m, MODAL) and getattr(m, "p", 1) > 0]
        if self._spectral and not module.training:
            self._record.fail("left in eval mode", count=len(self._spectral), spectral=True)
        if not layers:
            return
        self._record.ask("left in eval mode")
        if any(m.training for m in layers):
            self._was_training = True
        elif self._was_training:
            self._record.fail("left in eval mode", count=len(layers))

    def _scale(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        """Whether evaluation inputs are as large as training inputs."""
        now = _largest(args[0]) if args and isinstance(args[0], Tensor) else 0.0
        before = self._largest.get(id(module), 0.0)
        if now > 0 and before > 0:
            self._record.ask("evaluation on another scale")
            if not 1 / OFF < now / before < OFF:
                self._record.fail("evaluation on another scale", training=before, evaluation=now)

    def _scrambled(self, x: Tensor) -> None:
        """Whether an image has its pixels in order: neighbours are alike, and more so than pixels that lie apart.

        Reading height × width × colour as colour × height × width puts the colours of a pixel side by side: then pixels
        that lie as many places apart as there are colours are more alike than neighbours.
        """
        colours = 3
        if x.ndim != 4 or x.shape[1] != colours or min(x.shape[2:]) < 8 or not x.is_floating_point():
            return
        rows = x.detach()[:64].float()
        rows = rows - rows.mean((2, 3), keepdim=True)
        power = float(rows.square().mean())
        near, far = (float((rows[..., k:] * rows[..., :-k]).mean()) / power if power else 0.0 for k in (1, colours))
        if max(near, far) > 0.3:
            self._record.ask("scrambled images")
            if far > near + 0.1:
                self._record.fail("scrambled images", near=near, far=far)

    # ------------------------------------------------------------------ labels beside inputs

    def beside_labels(self, target: Tensor, ignored: int) -> None:
        """Compare class labels with the inputs of the last pass."""
        self._keep(target)
        x = self._tokens(target)
        if x is None:
            self._feature(target)
            return
        same_size = target.shape == x.shape or target.ndim == 1
        y = (target if same_size else target.reshape(-1)[: x.numel()]).reshape(x.shape)
        used = y != ignored
        self._record.ask("label is input")
        if bool(used.any()):
            same = float((x == y)[used].float().mean())
            if same > 0.95 and len(torch.unique(y[used])) > 2:
                self._copied = max(self._copied, same)  # which stays NaN

    def padding(self, target: Tensor, ignored: int) -> None:
        """Whether labels at padded places enter the loss: the same id at the end of rows, in input and labels."""
        x = self._tokens(target)
        if x is None or target.numel() != x.numel():
            return
        y = target.reshape(x.shape)
        self._record.ask("padding counted")
        pad = int(x[:, -1].mode().values)
        ends = (x == pad).flip(1).cumprod(1).flip(1).bool()
        lengths = ends.sum(1)
        padded = bool((lengths >= 2).float().mean() >= 0.25) and len(torch.unique(lengths)) > 1
        used = y != ignored
        share = float((ends & used & (y == pad)).sum()) / max(1, int(used.sum()))
        self._padded.append((pad, share if padded and not bool((x == pad)[~ends].any()) else 0.0))

    def _counted(self) -> None:
        """Whether most batches end in the same id, and the loss counts it."""
        for pad, times in Counter(pad for pad, share in self._padded if share > 0.1).most_common(1):
            if len(self._padded) >= 3 and 2 * times > len(self._padded):
                shares = sorted(share for other, share in self._padded if other == pad)
                self._record.fail("padding counted", share=shares[len(shares) // 2], token=pad)

    def beside_targets(self, target: Tensor) -> None:
        """Compare the targets of a regression with the inputs of the last pass."""
        self._keep(target)
        self._same_sequence(target)
        self._feature(target)

    def _keep(self, target: Tensor) -> None:
        if not self._depended:
            self._target = target.detach().clone()

    def _tokens(self, target: Tensor) -> Tensor | None:
        """The token ids of the last pass that stand where the labels stand."""
        for x in () if self._batch is None else (*self._batch[1], *self._batch[2].values()):
            if isinstance(x, Tensor) and not x.is_floating_point() and x.ndim == 2 and x.numel() == target.numel():
                return x if x.shape[1] > 1 else None
        return None

    def _same_sequence(self, target: Tensor) -> None:
        """Whether a sequence of targets is a column of the inputs at the same places."""
        for x in self._batch[1] if self._batch is not None else ():
            if not isinstance(x, Tensor) or not x.is_floating_point() or x.ndim != 3 or target.shape[:2] != x.shape[:2]:
                continue
            y = target.reshape(*x.shape[:2], -1)
            if x.shape[1] < 2 or y.shape[2] != 1 or x.shape[2] < 2 or float(y.std()) == 0:
                continue  # an autoencoder gives back all that it gets
            self._record.ask("label is input")
            if bool((x == y).all(0).all(0).any()):
                self._record.fail("label is input", share=1.0)

    def _feature(self, target: Tensor) -> None:
        """Keep a table of features and its labels, to ask whether one column gives the label."""
        if self._batch is None or len(self._batch[1]) != 1:
            return
        x = self._batch[1][0]
        if not isinstance(x, Tensor) or x.ndim != 2 or not x.is_floating_point() or not 2 <= x.shape[1] <= 512:
            return
        y = target.reshape(len(target), -1) if target.ndim else target.reshape(1, 1)
        if len(y) != len(x) or y.shape[1] != 1:
            return
        pair = (x.double().cpu(), y.double().cpu()[:, 0])
        if self._features is None:
            self._features = pair
        elif len(self._features[0]) < 4096:
            self._features = (torch.cat([self._features[0], pair[0]]), torch.cat([self._features[1], pair[1]]))

    def _leak(self) -> None:
        if self._features is None or len(self._features[0]) < 64:
            return
        rows = torch.unique(torch.cat([self._features[0], self._features[1][:, None]], 1), dim=0)  # epochs repeat them
        x, y = rows[:, :-1], rows[:, -1]
        if len(x) < 64:
            return
        if not 2 <= len(torch.unique(y)) <= 20:  # a regression on one feature is a task like any other
            return
        self._record.ask("label leak")
        for j in range(x.shape[1]):
            column = x[:, j]
            if float(column.std()) == 0:
                continue
            r = float(torch.corrcoef(torch.stack([column, y]))[0, 1])
            values, at = torch.unique(column, return_inverse=True)
            decides = abs(r) > 0.999
            if not decides and len(values) <= len(column) / 8 and len(torch.unique(y)) <= len(values):
                low = torch.full((len(values),), math.inf, dtype=torch.float64).scatter_reduce(0, at, y, "amin")
                high = torch.full((len(values),), -math.inf, dtype=torch.float64).scatter_reduce(0, at, y, "amax")
                decides = bool((low == high).all())
            if decides:
                self._record.fail("label leak", feature=j, correlation=r)
                return

    # ------------------------------------------------------------------ extra passes, and the end

    def end_step(self, busy: bool) -> None:
        """Ask once what an output depends on, but not while a measurement is under way (``busy``)."""
        if self._record.step < 2 or busy or self._depended or self._batch is None:
            return
        self._depended = True
        record, (module, args, kwargs) = self._record, self._batch
        try:
            answers = dependencies(module, args, kwargs, self._target)
        except Exception as error:
            record.why["dependencies"] = f"{type(error).__name__}: {error}"
            return
        if args and isinstance(args[0], Tensor) and self._first is not None and torch.equal(args[0], self._first):
            answers.pop("examples mixed", None)  # the same rows on every step may be the nodes of a graph
        if "why" in answers:
            record.why["dependencies"] = answers.pop("why")
        if answers.pop("label is input", None) is False:
            self._copied = math.nan  # the model does not see it when it predicts: teacher forcing
        for name, failed in answers.items():
            record.ask(name)
            if failed:
                record.fail(name, **(failed if isinstance(failed, dict) else {}))

    def forget(self) -> None:
        """The first steps are over: let go of the batch."""
        self._batch = None

    def conclude(self) -> None:
        """What follows from all steps together."""
        self._leak()
        self._counted()
        if self._copied > 0:
            self._record.fail("label is input", share=self._copied)
        for name in self.teachers:
            self._record.ask("teacher in train mode")
            if name in self._noisy and torch.equal(self._weights[name], _sum_of(self.teachers[name])):
                self._record.fail("teacher in train mode", parameters=[name])

    def facts(self) -> dict[str, Any]:
        """What rules ask of the model's layers."""
        modules = list(self._model.modules())
        widths = [(m.in_features, m.out_features) for m in modules if isinstance(m, nn.Linear)]
        return {
            "single": self.size == 1 and any(isinstance(m, NORMS) for m in modules),
            "dropout": max((float(m.p) for m in modules if isinstance(m, DROPOUT)), default=0.0),
            # linear layers between wider ones compress, which may be meant
            "narrow": bool(widths) and min(o for _, o in widths) < min(widths[0][0], widths[-1][1]),
        }


def _teachers(model: nn.Module) -> dict[str, nn.Module]:
    """The outermost frozen modules with a dropout, beside trained ones; not fused encoders, which a hook would slow."""
    out: dict[str, nn.Module] = {}
    if not any(p.requires_grad for p in model.parameters()):
        return out
    for name, module in model.named_modules():
        params = list(module.parameters())
        inside = any(name.startswith(f"{other}.") for other in out)
        frozen = name and not inside and params and not any(p.requires_grad for p in params)
        inner = list(module.modules())
        fused = any(isinstance(m, nn.TransformerEncoderLayer | nn.MultiheadAttention) for m in inner)
        if frozen and not fused and any(isinstance(m, DROPOUT) and m.p > 0 for m in inner):
            out[name] = module
    return out


def _sum_of(module: nn.Module) -> Tensor:
    """One number for each parameter, to see whether it has changed."""
    return torch.stack([p.detach().double().sum().cpu() for p in module.parameters()])


def _largest(x: Tensor) -> float:
    return float(x.detach().abs().max()) if x.is_floating_point() and x.numel() else 0.0


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value
