"""Training loops as people write them, in one process: each trains a model for four steps, watched or not.

A loop is a function of (network, folder of the run or None); it returns the watch, or None where it was not to watch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, TensorDataset

import netvitals as nv

STEPS, MICRO = 4, 2


class Net(nn.Module):
    """Two layers with an activation between; the middle is called by itself in some loops."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.act, self.last = nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.act(self.first(x)))


def data(n: int = 64) -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    return TensorDataset(torch.randn(n, 6, generator=generator), torch.randint(0, 3, (n,), generator=generator))


def batches(size: int = 8) -> DataLoader[Any]:
    return DataLoader(data(STEPS * size), batch_size=size)


def begin(model: Any, optimizer: Any, run: Path | None, **options: Any) -> Any:
    vitals = nv.vitals.choose(["gates", "gradients"])
    vitals[1].every = 1
    return None if run is None else nv.watch(model, optimizer, every=1, run=run, vitals=vitals, **options)


def sgd(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


def ended(vitals: Any) -> Any:
    if vitals is not None:
        vitals.close()
    return vitals


def simple(net: nn.Module, run: Path | None, called: Any = None, precision: Any = None) -> Any:
    called, optimizer = net if called is None else called, sgd(net)
    vitals = begin(called, optimizer, run)
    for x, y in batches():
        with torch.autocast("cpu", torch.bfloat16, enabled=precision is not None):
            loss = F.cross_entropy(called(x).float(), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if vitals is not None:
            vitals.step(loss)
    return ended(vitals)


def alone(net: nn.Module, run: Path | None) -> Any:
    """Nothing but nv.watch: no call of step."""
    optimizer = sgd(net)
    vitals = begin(net, optimizer, run)
    for x, y in batches():
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    return ended(vitals)


def accumulated(net: nn.Module, run: Path | None) -> Any:
    optimizer = sgd(net)
    vitals = begin(net, optimizer, run)
    for i, (x, y) in enumerate(DataLoader(data(), batch_size=8)):
        loss = F.cross_entropy(net(x), y)
        (loss / MICRO).backward()
        if vitals is not None:
            vitals.step(loss)
        if i % MICRO == MICRO - 1:
            optimizer.step()
            optimizer.zero_grad()
    return ended(vitals)


def two_optimizers(net: Any, run: Path | None) -> Any:
    optimizers = [sgd(net.first), torch.optim.AdamW(net.last.parameters(), lr=0.01)]
    vitals = begin(net, optimizers, run)
    for x, y in batches():
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        for optimizer in optimizers:
            optimizer.zero_grad()
        if vitals is not None:
            vitals.step(loss)
    return ended(vitals)


def closure(net: nn.Module, run: Path | None) -> Any:
    optimizer = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=3)
    vitals = begin(net, optimizer, run)
    for x, y in batches():

        def loss_of(x: Any = x, y: Any = y) -> Any:
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            return loss

        loss = optimizer.step(loss_of)
        if vitals is not None:
            vitals.step(loss)
    return ended(vitals)


def scaled(net: nn.Module, run: Path | None) -> Any:
    optimizer, scaler = sgd(net), torch.amp.GradScaler("cpu", init_scale=8.0)
    vitals = begin(net, optimizer, run)
    for x, y in batches():
        loss = F.cross_entropy(net(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        if vitals is not None:
            vitals.step(loss)
    return ended(vitals)


def parts(net: Any, run: Path | None) -> Any:
    """Two roots, each called by itself."""
    optimizer = sgd(net)
    vitals = begin({"encoder": nn.Sequential(net.first, net.act), "decoder": net.last}, optimizer, run)
    encoder = next(iter(vitals._model.children())) if vitals is not None else nn.Sequential(net.first, net.act)
    for x, y in batches():
        F.cross_entropy(net.last(encoder(x)), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    return ended(vitals)


def compiled(net: nn.Module, run: Path | None) -> Any:
    return simple(net, run, called=torch.compile(net, backend="aot_eager", fullgraph=True))


def compiled_in_place(net: nn.Module, run: Path | None) -> Any:
    net.compile(backend="aot_eager", fullgraph=True)
    return simple(net, run)


def compiled_around(net: nn.Module, run: Path | None) -> Any:
    """A compiled function calls the model and takes the loss."""
    loss_of = torch.compile(lambda x, y: F.cross_entropy(net(x), y), backend="aot_eager", fullgraph=True)
    return steps_of(net, run, loss_of)


def compiled_loss(net: nn.Module, run: Path | None) -> Any:
    entropy = torch.compile(lambda a, b: F.cross_entropy(a, b), backend="aot_eager", fullgraph=True)
    return steps_of(net, run, lambda x, y: entropy(net(x), y))


def compiled_step(net: nn.Module, run: Path | None) -> Any:
    """The optimizer's step is compiled."""
    return steps_of(net, run, lambda x, y: F.cross_entropy(net(x), y), torch.compile(backend="eager"))


def functional(net: nn.Module, run: Path | None) -> Any:
    """torch.func.functional_call with other parameters, which are copied into the model in the end."""
    params = {name: p.detach().clone().requires_grad_() for name, p in net.named_parameters()}
    optimizer = torch.optim.SGD(params.values(), lr=0.1, momentum=0.9)
    vitals = begin(net, optimizer, run, parameters=params)
    for x, y in batches():
        loss = F.cross_entropy(torch.func.functional_call(net, params, (x,)), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if vitals is not None:
            vitals.step(loss)
    net.load_state_dict(params)
    return ended(vitals)


def steps_of(net: nn.Module, run: Path | None, loss_of: Any, compiled: Any = lambda step: step) -> Any:
    optimizer = sgd(net)
    step = compiled(lambda: optimizer.step())
    vitals = begin(net, optimizer, run)
    for x, y in batches():
        loss = loss_of(x, y)
        loss.backward()
        step()
        optimizer.zero_grad()
        if vitals is not None:
            vitals.step(loss)
    return ended(vitals)


def scripted(net: Any, run: Path | None) -> Any:
    """A part of the model is TorchScript."""
    net.last = torch.jit.script(net.last)
    return simple(net, run)


def checkpointed(net: Any, run: Path | None) -> Any:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.last = nn.Sequential(net.first, net.act), net.last

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(checkpoint(self.body, x, use_reentrant=False))

    return simple(net, run, called=Checkpointed())


def lightning(net: nn.Module, run: Path | None) -> Any:
    import lightning.pytorch as pl

    from netvitals.integrations.lightning import VitalsCallback

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def training_step(self, batch: Any, i: int) -> Any:
            return F.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            return sgd(self)

    callback = VitalsCallback(every=1, run=run, vitals=_each())
    trainer = pl.Trainer(
        max_epochs=1, accumulate_grad_batches=MICRO, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[] if run is None else [callback],
    )  # fmt: skip
    trainer.fit(Module(), DataLoader(data(), batch_size=8))
    return callback.vitals


def fabric(net: nn.Module, run: Path | None) -> Any:
    from lightning.fabric import Fabric

    here = Fabric(accelerator="cpu", devices=1)
    model, optimizer = here.setup(net, sgd(net))
    vitals = begin(model, optimizer, run)
    for x, y in batches():
        here.backward(F.cross_entropy(model(x), y))
        optimizer.step()
        optimizer.zero_grad()
    return ended(vitals)


def accelerated(net: nn.Module, run: Path | None) -> Any:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=MICRO)
    model, optimizer, loader = accelerator.prepare(net, sgd(net), DataLoader(data(), batch_size=8))
    vitals = begin(model, optimizer, run)
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = F.cross_entropy(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            if vitals is not None:
                vitals.step(loss)
    return ended(vitals)


class Rows(Dataset[Any]):
    def __len__(self) -> int:
        return STEPS * MICRO * 8

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        return {"x": torch.randn(6, generator=torch.Generator().manual_seed(i)), "labels": torch.tensor(i % 3)}


class WithLoss(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.net(x)
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


def hugging_face(net: nn.Module, run: Path | None) -> Any:
    import tempfile

    from transformers import Trainer, TrainingArguments

    from netvitals.integrations.huggingface import VitalsCallback

    callback = VitalsCallback(every=1, run=run, vitals=_each())
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(), max_steps=STEPS, per_device_train_batch_size=8, save_strategy="no",
        gradient_accumulation_steps=MICRO, report_to=[], disable_tqdm=True, use_cpu=True, learning_rate=0.01,
    )  # fmt: skip
    Trainer(WithLoss(net), arguments, train_dataset=Rows(), callbacks=[] if run is None else [callback]).train()
    return callback.vitals


def _each() -> list[Any]:
    vitals = nv.vitals.choose(["gates", "gradients"])
    vitals[1].every = 1
    return vitals


LOOPS = {
    "a plain loop": simple,
    "without vitals.step": alone,
    "gradient accumulation": accumulated,
    "two optimizers": two_optimizers,
    "LBFGS and its closure": closure,
    "GradScaler": scaled,
    "autocast, bfloat16": lambda net, run: simple(net, run, precision=torch.bfloat16),
    "checkpointing": checkpointed,
    "encoder and decoder": parts,
    "torch.compile(model, fullgraph=True)": compiled,
    "model.compile(fullgraph=True)": compiled_in_place,
    "a compiled function around the model": compiled_around,
    "a compiled loss": compiled_loss,
    "a compiled optimizer step": compiled_step,
    "functional_call": functional,
    "a part in TorchScript": scripted,
    "Lightning, accumulating": lightning,
    "Fabric": fabric,
    "accelerate, accumulating": accelerated,
    "Hugging Face Trainer, accumulating": hugging_face,
}
