"""A batch of one's own gives what a training step on it gives, and leaves nothing behind."""

import json
import math
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv
from netvitals.capture import observe, rng_state


def measurements(items):
    loops = ("carried", "passes")  # there is no loop in a probe
    return {(r.vital, r.site, r.metric): r.value for r in items if r.vital != "loss" and r.metric not in loops}


@pytest.mark.parametrize("vitals", [["echo"], None])
def test_passive_and_probe_give_the_same_measurements(vitals, image_net, image_batch, echo):
    from netvitals import vitals as memory

    chosen = lambda: [echo] if vitals else memory.default()
    image_net.dropout.p = 0.0
    x, y = image_batch
    probed = observe(image_net, F.cross_entropy, (x, y), vitals=chosen(), mode="train")
    with nv.watch(image_net, every=1, vitals=chosen()) as watching:
        F.cross_entropy(image_net(x), y).backward()
        watching.step()
    passive, probe = measurements(watching.measurements), measurements(probed.measurements)
    assert set(passive) == set(probe) and len(probe) > 30
    different = {k for k in probe if probe[k] != passive[k] and not math.isnan(probe[k])}
    assert different == set()
    assert watching.sites == list(probed.sites)


def test_watching_with_a_probe_sees_what_a_look_sees(image_net, image_batch, echo):
    x, y = image_batch
    probed = observe(image_net, F.cross_entropy, (x, y), vitals=[echo], mode="train")
    with nv.watch(image_net, every=1, probe=(x, y, F.cross_entropy), vitals=[echo]) as watching:
        watching.step()
    got = {k: v for k, v in measurements(watching.measurements).items() if k[1] != "parameters"}
    assert got == {k: v for k, v in measurements(probed.measurements).items() if k[1] != "parameters"}


def test_without_a_loss_function_there_are_no_gradients(image_net, image_batch, echo):
    seen = observe(image_net, None, image_batch, vitals=[echo], mode="train")
    assert seen.loss is None and not [r for r in seen.measurements if r.metric == "gradient"]


def everything(model):
    state = rng_state()
    return {
        "values": {k: v.clone() for k, v in model.state_dict().items()},
        "grads": {n: None if p.grad is None else p.grad.clone() for n, p in model.named_parameters()},
        "modes": [m.training for m in model.modules()],
        "rng": state["torch"],
        "numpy": state["numpy"][1].tolist(),
        "hooks": sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()),
        "objects": [id(p.grad) for p in model.parameters()] + [id(b) for b in model.buffers()],
    }


def unchanged(one, two):
    for key in ("values", "grads"):
        for name in one[key]:
            a, b = one[key][name], two[key][name]
            if not (a is b is None or torch.equal(a, b)):
                return False
    return torch.equal(one["rng"], two["rng"]) and all(one[k] == two[k] for k in ("modes", "numpy", "hooks", "objects"))


@pytest.mark.parametrize("mode", ["train", "eval", "as_is"])
@pytest.mark.parametrize("fails", [False, True])
def test_nothing_is_left_behind(mode, fails, image_net, image_batch, echo):
    x, y = image_batch
    F.cross_entropy(image_net(x), y).backward()
    image_net.blocks[0].norm1.eval()
    state = everything(image_net)

    def loss(output, target):
        if fails:
            raise RuntimeError("no loss today")
        return F.cross_entropy(output, target)

    with pytest.raises(RuntimeError, match="no loss") if fails else nullcontext():
        observe(image_net, loss, (x, y), vitals=[echo], mode=mode)
    assert unchanged(state, everything(image_net))
    assert len(torch.overrides._get_current_function_mode_stack()) == 0


def test_batch_statistics_by_default_and_running_ones_on_request(echo):
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Tanh())
    model.eval()
    x = torch.randn(50, 3) * 4 + 7
    value = lambda mode: next(
        r.value
        for r in observe(model, None, x, vitals=[echo], mode=mode).measurements
        if (r.site, r.metric) == ("0", "value")
    )
    assert abs(value("train")) < 1e-5
    assert value("eval") == pytest.approx(float(x.mean()), rel=1e-3) == value("as_is")


def test_dropout_is_off_and_other_noise_is_the_same_on_every_look(image_net, image_batch, echo):
    observations = [
        observe(image_net, F.cross_entropy, image_batch, vitals=[echo], mode="train").measurements for _ in range(2)
    ]
    assert observations[0] == observations[1]
    image_net.dropout.p = 0.0
    assert observe(image_net, F.cross_entropy, image_batch, vitals=[echo], mode="train").measurements == observations[0]


def test_it_works_inside_no_grad(image_net, image_batch, echo):
    with torch.no_grad():
        seen = observe(image_net, F.cross_entropy, image_batch, vitals=[echo], mode="train")
    assert [r for r in seen.measurements if r.metric == "gradient"]


@pytest.mark.parametrize("x", [(torch.ones(4, 3), torch.zeros(4, 3)), {"a": torch.ones(4, 3), "b": torch.zeros(4, 3)}])
def test_several_inputs(x, echo):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, a, b):
            return torch.tanh(self.layer(a) + self.layer(b))

    seen = observe(Two(), F.mse_loss, (x, torch.zeros(4, 2)), vitals=[echo], mode="train")
    assert [s.name for s in seen.sites] == ["layer", "layer#2", "tanh()", "output"]


@pytest.mark.parametrize(
    ("batch", "loss", "sentence"),
    [
        (torch.randn(4, 3), F.mse_loss, r"the batch must be a pair \(x, y\) or a dict with a target, got a Tensor"),
        ((torch.randn(4, 3), torch.zeros(4, 2)), lambda o, y: (o - y) ** 2, "must return one number as a tensor"),
    ],
)
def test_bad_input_gets_a_sentence(batch, loss, sentence, echo):
    with pytest.raises(TypeError, match=sentence):
        observe(nn.Linear(3, 2), loss, batch, vitals=[echo], mode="train")
    with pytest.raises(ValueError, match="mode= must be"):
        observe(nn.Linear(3, 2), None, torch.randn(4, 3), vitals=[echo], mode="sideways")


def test_the_model_is_looked_at_as_it_is_unless_asked(echo):
    model = nn.Sequential(nn.Dropout(0.5), nn.Tanh())
    x = torch.ones(64, 3)
    value = lambda **options: [r.value for r in observe(model, None, x, vitals=[echo], **options).measurements]
    assert value() != value(mode="train") == value(mode="eval")  # dropout draws, as the model stands
    assert value() == value(mode="as_is", seed=0) != value(seed=1)
    model.eval()
    assert value() == value(mode="eval")


def test_the_old_order_is_refused_with_a_sentence(echo):
    x = torch.randn(4, 3)
    for batch in (x, (x, x), {"input": x}):
        with pytest.raises(TypeError, match=r"the order of arguments is \(model, loss_fn, batch\)"):
            observe(nn.Linear(3, 2), batch, F.mse_loss, vitals=[echo])


def test_a_model_with_its_own_loss_needs_no_loss_function(echo):
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x, labels=None):
            logits = torch.tanh(self.layer(x))
            return {"logits": logits, "loss": None if labels is None else F.mse_loss(logits, labels)}

    torch.manual_seed(0)
    model, x, y = Own(), torch.randn(4, 3), torch.randn(4, 2)
    own = observe(model, None, {"x": x, "labels": y}, vitals=[echo])
    given = observe(model, "mse", {"x": x, "labels": y}, vitals=[echo])
    assert own.loss == given.loss and [r for r in own.measurements if r.metric == "gradient"]
    assert observe(model, None, {"x": x}, vitals=[echo]).loss is None


def test_an_observation_is_a_table(echo):
    seen = observe(
        nn.Sequential(nn.Linear(3, 2), nn.Tanh()), "mse", (torch.ones(4, 3), torch.ones(4, 2)), vitals=[echo]
    )
    frame = seen.to_frame()
    assert frame.columns == ["step", "vital", "site", "metric", "value"] and len(frame) == len(seen.measurements)
    assert json.loads(json.dumps(seen.to_dict()))["skipped"] == {}
