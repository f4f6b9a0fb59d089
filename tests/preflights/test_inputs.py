"""Preflight takes what loops have: models of all kinds, loaders of all kinds, with and without an optimizer."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import netvitals as nv


def classes(n=256, width=8, k=4):
    x = torch.randn(n, width)
    return x, x[:, :k].argmax(1)


def net(width=8, k=4):
    return nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, k))


def healthy(report, *need):
    assert not report.failed, str(report)
    for name in need:
        assert report[name].status == "passed", report[name]


def test_a_plain_module_and_a_loader():
    torch.manual_seed(0)
    model = net()
    loader = DataLoader(TensorDataset(*classes()), batch_size=32, shuffle=True)
    report = nv.preflight(model, "ce", loader, torch.optim.Adam(model.parameters(), lr=3e-3))
    healthy(report, "one step", "memorises one batch", "learning rate too high", "update lost")
    healthy(report, "loss at initialisation")
    assert report.rates.yours == 3e-3 and report.rates.high is not None and report.note == ""


class Dicts(torch.utils.data.Dataset):
    def __init__(self):
        self.x, self.y = classes()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"input": self.x[i], "labels": self.y[i]}


def test_a_loader_of_dicts():
    torch.manual_seed(0)
    model = net()
    report = nv.preflight(model, "ce", DataLoader(Dicts(), 32), torch.optim.Adam(model.parameters(), lr=3e-3))
    healthy(report, "memorises one batch", "unnormalised input")


class Stream(IterableDataset):
    def __iter__(self):
        x, y = classes(200)
        yield from zip(x, y)


def test_an_iterable_dataset_says_what_was_read():
    torch.manual_seed(0)
    model = net()
    report = nv.preflight(
        model, "ce", DataLoader(Stream(), 20), torch.optim.Adam(model.parameters(), lr=3e-3), batches=4
    )
    healthy(report)
    assert report.batches == 4 and "4 batches were read from an iterable dataset" in report.note


def test_an_iterator_says_what_it_has_lost():
    torch.manual_seed(0)
    x, y = classes()
    left = iter([(x[i : i + 32], y[i : i + 32]) for i in range(0, 256, 32)])
    report = nv.preflight(net(), "ce", left, batches=3)
    assert "3 batches were taken from the iterator" in report.note
    assert len(list(left)) == 5


@pytest.mark.parametrize("wrapped", [True, False])
def test_one_batch(wrapped):
    torch.manual_seed(0)
    batch = classes(64)
    model = net()
    report = nv.preflight(model, "ce", [batch] if wrapped else batch, torch.optim.Adam(model.parameters(), lr=3e-3))
    healthy(report, "memorises one batch")
    assert report.batches == 1


def test_no_optimizer_says_what_cannot_be_asked():
    torch.manual_seed(0)
    report = nv.preflight(net(), "ce", [classes(64)])
    healthy(report, "memorises one batch")
    for name in ("not in the optimizer", "learning rate too high", "update size", "update lost"):
        assert report[name].status == "not applicable" and "no optimizer" in report[name].why


def test_an_empty_loader_and_wrong_arguments_get_sentences():
    model = net()
    with pytest.raises(ValueError, match="no batch"):
        nv.preflight(model, "ce", [])
    with pytest.raises(TypeError, match=r"needs a torch\.nn\.Module.* the order of arguments is"):
        nv.preflight("ce", model, [classes()])
    with pytest.raises(TypeError, match=r"optimizer= must be a torch\.optim\.Optimizer"):
        nv.preflight(model, "ce", [classes()], 0.1)
    with pytest.raises(ValueError, match="must both be positive"):
        nv.preflight(model, "ce", [classes()], batches=0)
    with pytest.raises(ValueError, match="2 losses need 2 optimizers"):
        nv.preflight([model, net()], [min, max], [classes()], torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(TypeError, match=r"function of \(models, batch\)"):
        nv.preflight([model, net()], None, [classes()])


def test_a_model_that_cannot_be_copied_is_refused():
    model = net()
    model.cache = torch.ones(2, requires_grad=True) * 2
    with pytest.raises(ValueError, match="works on a copy"):
        nv.preflight(model, "ce", [classes()])


# ---------------------------------------------------------------- Hugging Face


def hugging_face(kind):
    transformers = pytest.importorskip("transformers")
    ids = torch.randint(3, 60, (64, 12))
    if kind == "gpt2":
        config = transformers.GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2)
        return transformers.GPT2LMHeadModel(config), {"input_ids": ids, "labels": ids.clone()}
    if kind == "bert":
        config = transformers.BertConfig(
            vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
            num_labels=3,
        )  # fmt: skip
        batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids[:, 1] % 3}
        return transformers.BertForSequenceClassification(config), batch
    if kind == "vit":
        config = transformers.ViTConfig(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=16,
            patch_size=8, num_labels=3,
        )  # fmt: skip
        y = torch.arange(64) % 3
        x = torch.randn(64, 3, 16, 16) + y[:, None, None, None]
        return transformers.ViTForImageClassification(config), {"pixel_values": x, "labels": y}
    config = transformers.T5Config(
        vocab_size=64, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2, decoder_start_token_id=0
    )
    return transformers.T5ForConditionalGeneration(config), {"input_ids": ids, "labels": ids.flip(1).contiguous()}


@pytest.mark.parametrize("kind", ["gpt2", "bert", "vit", "t5"])
def test_hugging_face_models_with_their_own_loss(kind):
    torch.manual_seed(0)
    model, batch = hugging_face(kind)
    batches = [{k: v[i : i + 16] for k, v in batch.items()} for i in range(0, 64, 16)]
    report = nv.preflight(model, None, batches, torch.optim.AdamW(model.parameters(), lr=1e-3), seconds=1.5)
    healthy(report, "one step", "not in the optimizer")


# ---------------------------------------------------------------- Lightning and GANs


def test_a_lightning_module():
    lightning = pytest.importorskip("lightning.pytorch")

    class Lit(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = net()

        def training_step(self, batch, index):
            x, y = batch
            loss = nn.functional.cross_entropy(self.net(x), y)
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=3e-3)

    torch.manual_seed(0)
    x, y = classes()
    model = Lit()
    report = nv.preflight(model, None, [(x[i : i + 32], y[i : i + 32]) for i in range(0, 256, 32)])
    healthy(report, "learning rate too high", "not in the optimizer", "memorises one batch")
    assert "log" not in vars(model)


def gan(detach=False):
    g = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
    d = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    bce = nn.functional.binary_cross_entropy_with_logits

    def discriminator(models, real):
        fake = models[0](torch.randn(len(real), 4)).detach()
        a, b = models[1](real), models[1](fake)
        return bce(a, torch.ones_like(a)) + bce(b, torch.zeros_like(b))

    def generator(models, real):
        fake = models[0](torch.randn(len(real), 4))
        score = models[1](fake.detach() if detach else fake)
        return bce(score, torch.ones_like(score))

    optimizers = [torch.optim.Adam(d.parameters(), lr=1e-3), torch.optim.Adam(g.parameters(), lr=1e-3)]
    return [g, d], [discriminator, generator], optimizers


@pytest.mark.parametrize("detach", [False, True])
def test_a_gan(detach):
    torch.manual_seed(0)
    models, losses, optimizers = gan(detach)
    loader = DataLoader(torch.randn(192, 2) + 1, 32)  # batches are tensors
    report = nv.preflight(models, losses, loader, optimizers)
    if detach:
        assert "cut off" in [c.name for c in report.failed]
    else:
        healthy(report, "one step", "update size")
    for name in ("memorises one batch", "learning rate too low", "constant labels"):
        assert report[name].status == "not applicable", report[name]


def test_a_forward_of_the_users_own():
    torch.manual_seed(0)
    model, (x, y) = net(), classes()
    forward = lambda m, batch: m(batch["a"]["x"])
    batches = [{"a": {"x": x[i : i + 64]}, "t": y[i : i + 64]} for i in range(0, 256, 64)]
    loss = lambda out, batch: nn.functional.cross_entropy(out, batch["t"])
    report = nv.preflight(model, loss, batches, torch.optim.Adam(model.parameters(), lr=3e-3), forward=forward)
    healthy(report, "one step", "learning rate too high")


def test_a_loss_that_holds_the_model_trains_the_copy():
    torch.manual_seed(0)
    model, batch = net(), classes(64)
    before = [p.clone() for p in model.parameters()]
    report = nv.preflight(
        [model],
        lambda models, b: nn.functional.cross_entropy(model(b[0]), b[1]),
        [batch],
        torch.optim.Adam(model.parameters(), lr=3e-3),
    )
    healthy(report, "one step", "not in the optimizer")
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters()))
