"""Trainers of Lightning, Fabric, Hugging Face and accelerate: steps, losses, interruptions, checkpoints."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import netvitals as nv


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def numbers(watching, metric, site="model"):
    return {r.step: r.value for r in watching.measurements if r.metric == metric and r.site == site}


def hooks(model):
    return [h for m in model.modules() for h in (*m._forward_hooks, *m._forward_pre_hooks)]


def data(n=64):
    generator = torch.Generator().manual_seed(0)
    return TensorDataset(torch.randn(n, 6, generator=generator), torch.randint(0, 3, (n,), generator=generator))


def fit(module, callback, tmp_path, ckpt=None, batch_size=8, **settings):
    lightning = pytest.importorskip("lightning.pytorch")
    trainer = lightning.Trainer(
        **{"max_epochs": 1, **settings},
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        default_root_dir=tmp_path,
    )
    trainer.fit(module, DataLoader(data(), batch_size=batch_size), ckpt_path=ckpt)
    return trainer


def lightning_module(two=False):
    lightning = pytest.importorskip("lightning.pytorch")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.losses, self.stop_at = network(), [], None
            self.head = nn.Sequential(nn.Tanh(), nn.Linear(3, 3)) if two else None

        def training_step(self, batch, i):
            if i == self.stop_at:
                raise KeyboardInterrupt
            out = self.net(batch[0])
            loss = F.cross_entropy(self.head(out) if two else out, batch[1])
            self.losses.append(loss.item())
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return Module()


def test_lightning_accumulates(tmp_path):
    from netvitals.integrations.lightning import VitalsCallback

    callback, module = VitalsCallback(every=1, vitals=["gradients"]), lightning_module()
    fit(module, callback, tmp_path, accumulate_grad_batches=4)
    losses = numbers(callback.vitals, "loss")
    assert len(module.losses) == 8 and sorted(losses) == [0, 1]
    assert losses[0] == pytest.approx(sum(module.losses[:4]) / 4, rel=1e-6)
    assert losses[1] == pytest.approx(sum(module.losses[4:]) / 4, rel=1e-6)
    reference = network()
    x, y = data()[:32]
    F.cross_entropy(reference(x), y).backward()
    norm = torch.cat([p.grad.flatten() for p in reference.parameters()]).norm().item()
    assert numbers(callback.vitals, "grad_norm")[0] == pytest.approx(norm, rel=1e-5)
    assert numbers(callback.vitals, "update_ratio").keys() == {0}


def test_lightning_with_two_networks(tmp_path):
    from netvitals.integrations.lightning import VitalsCallback

    callback = VitalsCallback(every=1, vitals=["gates"])
    fit(lightning_module(two=True), callback, tmp_path)
    assert {r.site for r in callback.vitals.measurements if r.vital == "gates"} == {"net.1", "head.0", "model"}


def test_a_lightning_gan_has_a_line_for_its_losses(tmp_path):
    lightning = pytest.importorskip("lightning.pytorch")
    from netvitals.integrations.lightning import VitalsCallback

    class Gan(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False
            self.generator, self.critic = nn.Linear(2, 6), network()

        def training_step(self, batch, _):
            for_generator, for_critic = self.optimizers()
            score = self.critic(self.generator(torch.randn(8, 2))).mean()
            self.manual_backward(-score)
            for_generator.step()
            for_generator.zero_grad()
            self.manual_backward(self.critic(self.generator(torch.randn(8, 2)).detach()).mean())
            for_critic.step()
            for_critic.zero_grad()

        def configure_optimizers(self):
            return [torch.optim.SGD(part.parameters(), lr=0.01) for part in (self.generator, self.critic)]

    callback = VitalsCallback(every=1)
    fit(Gan(), callback, tmp_path, max_steps=6, max_epochs=3)
    assert numbers(callback.vitals, "loss") == {}
    assert "return it from training_step" in callback.vitals.skipped["loss"]


def test_lightning_interrupted_and_resumed(tmp_path):
    from netvitals.integrations.lightning import VitalsCallback

    callback, module = VitalsCallback(every=1, run=tmp_path / "run", vitals=["gates"]), lightning_module()
    trainer = fit(module, callback, tmp_path, max_epochs=1, batch_size=16)
    trainer.save_checkpoint(tmp_path / "c.ckpt")
    again = lightning_module()
    fit(again, callback, tmp_path, ckpt=tmp_path / "c.ckpt", max_epochs=2, batch_size=16)
    run = nv.open_run(tmp_path / "run")
    assert sorted(run.frame(vital="loss")["step"]) == list(range(8)) and run.status == "finished"
    again.stop_at = 2
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        fit(again, VitalsCallback(every=1, run=tmp_path / "other"), tmp_path)
    assert hooks(again) == [] and nv.open_run(tmp_path / "other").status == "interrupted"


@pytest.mark.parametrize("there", [True, False])
def test_resume_in_a_callback_is_the_step_of_the_trainer(tmp_path, there):
    from netvitals.integrations.callback import begin

    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train(watching, steps):
        for _ in range(steps):
            optimizer.zero_grad()
            loss = model(torch.randn(4, 6)).square().mean()
            loss.backward()
            optimizer.step()
            watching.step(loss)
        watching.close()

    options = {"run": tmp_path / "run", "every": 1, "vitals": ["gates"]}
    if there:
        train(begin(model, optimizer, 0, options), 6)
    train(begin(model, optimizer, 3, {**options, "resume": True}), 2)
    losses = nv.open_run(tmp_path / "run").frame(vital="loss")
    assert sorted(losses["step"]) == ([0, 1, 2, 3, 4] if there else [3, 4])
    train(begin(model, optimizer, 0, {**options, "resume": True}), 1)  # from the beginning again
    assert sorted(nv.open_run(tmp_path / "run").frame(vital="loss")["step"]) == [0]


@pytest.mark.parametrize("resume", [{}, {"resume": True}])
def test_lightning_goes_on_at_the_checkpoint_in_the_middle(tmp_path, resume):
    from netvitals.integrations.lightning import VitalsCallback

    options = {"every": 1, "run": tmp_path / "run", "vitals": ["gates"], **resume}
    trainer = fit(lightning_module(), VitalsCallback(**options), tmp_path, max_steps=3)
    trainer.save_checkpoint(tmp_path / "three.ckpt")
    fit(
        lightning_module(), VitalsCallback(**options), tmp_path, ckpt=tmp_path / "three.ckpt", max_steps=6, max_epochs=3
    )
    fit(
        lightning_module(), VitalsCallback(**options), tmp_path, ckpt=tmp_path / "three.ckpt", max_steps=5, max_epochs=3
    )
    assert sorted(nv.open_run(tmp_path / "run").frame(vital="loss")["step"]) == [0, 1, 2, 3, 4]


def test_fabric(tmp_path):
    fabric = pytest.importorskip("lightning.fabric").Fabric(accelerator="cpu", devices=1)
    inner = network()
    model, optimizer = fabric.setup(inner, torch.optim.SGD(inner.parameters(), lr=0.1))
    with nv.watch(model, optimizer, every=1) as watching:
        for x, y in DataLoader(data(), batch_size=16):
            fabric.backward(F.cross_entropy(model(x), y))
            optimizer.step()
            optimizer.zero_grad()
    assert {"1", "output"} <= {s.name for s in watching.sites} and len(numbers(watching, "density@0.01")) == 4
    assert sorted(numbers(watching, "update_ratio")) == [0, 2]


def test_accelerate_accumulates():
    accelerator = pytest.importorskip("accelerate").Accelerator(cpu=True, gradient_accumulation_steps=4)
    model = network()
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(data(), batch_size=8)
    )
    losses = []
    with nv.watch(model, optimizer, every=1, vitals=["gradients"]) as watching:
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(x), y)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
                watching.step(loss)
                losses.append(loss.item())
    found = numbers(watching, "loss")
    assert sorted(found) == [0, 1] and found[0] == pytest.approx(sum(losses[:4]) / 4, rel=1e-6)
    reference = network()
    x, y = data()[:32]
    F.cross_entropy(reference(x), y).backward()
    norm = torch.cat([p.grad.flatten() for p in reference.parameters()]).norm().item()
    assert numbers(watching, "grad_norm")[0] == pytest.approx(norm, rel=1e-5)


class Rows(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return {"x": torch.randn(6, generator=torch.Generator().manual_seed(i)), "labels": torch.tensor(i % 3)}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.losses, self.stop_at = network(), [], None

    def forward(self, x, labels=None):
        if self.stop_at == len(self.losses):
            raise KeyboardInterrupt
        logits = self.net(x)
        loss = F.cross_entropy(logits, labels)
        self.losses.append(loss.item())
        return {"loss": loss, "logits": logits}


def trainer_of(model, callback, tmp_path, **settings):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / "out"),
        **{"max_steps": 6, "logging_steps": 500, "save_strategy": "no", **settings},
        per_device_train_batch_size=8,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    return transformers.Trainer(model=model, args=arguments, train_dataset=Rows(), callbacks=[callback])


def test_huggingface_has_every_loss_and_accumulates(tmp_path):
    pytest.importorskip("transformers")
    from netvitals.integrations.huggingface import VitalsCallback

    callback, model = VitalsCallback(every=1, vitals=["gradients", "gates"]), Model()
    trainer_of(model, callback, tmp_path, gradient_accumulation_steps=2).train()
    losses = numbers(callback.vitals, "loss")
    assert len(model.losses) == 12 and sorted(losses) == list(range(6))
    for step, loss in losses.items():
        assert loss == pytest.approx(sum(model.losses[2 * step : 2 * step + 2]) / 2, rel=1e-4)
    assert sorted(numbers(callback.vitals, "update_ratio")) == [0, 2, 4]
    callback = VitalsCallback(every=1, vitals=["gates"])
    trainer_of(Model(), callback, tmp_path, logging_steps=2).train()
    assert sorted(numbers(callback.vitals, "loss")) == list(range(6))
    assert min(numbers(callback.vitals, "loss").values()) > 0.1


def test_huggingface_survives_ctrl_c_and_goes_on_from_a_checkpoint(tmp_path):
    pytest.importorskip("transformers")
    from netvitals.integrations.huggingface import VitalsCallback

    model = Model()
    callback = VitalsCallback(every=1, run=tmp_path / "run", vitals=["gates"])
    trainer = trainer_of(model, callback, tmp_path, save_strategy="steps", save_steps=2)
    model.stop_at = 3
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert hooks(model) == [] and nv.open_run(tmp_path / "run").status == "interrupted"
    with pytest.raises(ValueError, match="is closed"):
        callback.vitals.step()
    model.stop_at = None
    trainer.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-2"))
    run = nv.open_run(tmp_path / "run")
    assert run.status == "finished" and sorted(set(run.frame(vital="loss")["step"])) == list(range(6))
    assert hooks(model) == []
    nv.watch(model).close()
