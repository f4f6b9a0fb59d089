"""netvitals inside Lightning and Hugging Face trainers, and runs sent to trackers."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import netvitals as nv
from netvitals.integrations import trackers


def network():
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def a_run(folder):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with nv.watch(model, optimizer=optimizer, run=folder, every=2) as vitals:
        for _ in range(4):
            loss = nn.functional.cross_entropy(model(torch.randn(16, 6)), torch.randint(0, 3, (16,)))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            vitals.step(loss)
    return folder


def test_lightning_callback(tmp_path):
    lightning = pytest.importorskip("lightning.pytorch")
    from netvitals.integrations.lightning import VitalsCallback

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = network()

        def training_step(self, batch, _):
            x, y = batch
            return nn.functional.cross_entropy(self.net(x), y)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    callback = VitalsCallback(run=tmp_path / "run", every=2)
    trainer = lightning.Trainer(
        max_epochs=1,
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        default_root_dir=tmp_path,
    )
    data = TensorDataset(torch.randn(64, 6), torch.randint(0, 3, (64,)))
    trainer.fit(Module(), DataLoader(data, batch_size=16))
    run = nv.open_run(tmp_path / "run")
    assert run.status == "finished"
    assert run.frame(vital="loss").height == 4 and run.frame(vital="gates")["step"].unique().sort().to_list() == [0, 2]


def test_a_lightning_module_with_two_networks_is_watched_whole():
    pytest.importorskip("lightning.pytorch")
    from netvitals.integrations.lightning import network as inside

    both = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
    assert inside(both, "b") is both["b"] and inside(both) is both
    assert inside(nn.ModuleDict({"a": both["a"]})) is both["a"]


def test_huggingface_callback(tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from netvitals.integrations.huggingface import VitalsCallback

    class Rows(Dataset):
        def __len__(self):
            return 32

        def __getitem__(self, i):
            return {"x": torch.randn(6, generator=torch.Generator().manual_seed(i)), "labels": torch.tensor(i % 3)}

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = network()

        def forward(self, x, labels=None):
            logits = self.net(x)
            return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}

    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / "out"),
        max_steps=4,
        logging_steps=1,
        per_device_train_batch_size=8,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = transformers.Trainer(
        model=Model(), args=arguments, train_dataset=Rows(), callbacks=[VitalsCallback(run=tmp_path / "run", every=2)]
    )
    trainer.train()
    run = nv.open_run(tmp_path / "run")
    assert run.status == "finished" and run.frame(vital="gates").height > 0


def test_tensorboard_gets_every_number_of_the_model(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = a_run(tmp_path / "run")
    sent = trackers.send(run, "tensorboard", log_dir=str(tmp_path / "board"))
    events = EventAccumulator(str(tmp_path / "board"))
    events.Reload()
    names = events.Tags()["scalars"]
    assert sent == sum(len(events.Scalars(n)) for n in names)
    assert "loss/loss" in names and len(events.Scalars("loss/loss")) == 4
    assert trackers.send(run, "tensorboard", sites=True, log_dir=str(tmp_path / "all")) > sent


def test_unknown_tracker(tmp_path):
    with pytest.raises(ValueError, match="wandb, tensorboard, mlflow"):
        trackers.send(tmp_path, "excel")
