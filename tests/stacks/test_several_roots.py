"""Several models at once, models without a forward, and parts that are called by themselves."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import netvitals as nv


def encoder():
    return nn.Sequential(nn.Linear(6, 8), nn.GELU())


def decoder():
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 6))


class Pair(nn.Module):
    """Has no forward."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = encoder(), decoder()

    def loss(self, x):
        return F.mse_loss(self.decoder(self.encoder(x)), x)


def train(loss_of, parameters, steps=3, micro=1):
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    for _ in range(steps):
        for _ in range(micro):
            loss_of(torch.randn(5, 6)).backward()
        optimizer.step()
        optimizer.zero_grad()


def test_an_encoder_and_a_decoder():
    torch.manual_seed(0)
    one, two = encoder(), decoder()
    with nv.watch({"encoder": one, "decoder": two}, every=1, vitals=["gates", "gradients"]) as watching:
        train(lambda x: F.mse_loss(two(one(x)), x), [*one.parameters(), *two.parameters()], micro=2)
        with pytest.raises(ValueError, match="already watched"):
            nv.watch(two)
    gates = {r.site for r in watching.measurements if r.vital == "gates"}
    assert {"encoder.1", "decoder.1"} <= gates
    assert sorted({r.step for r in watching.measurements if r.site == "decoder.1"}) == [0, 1, 2]
    assert {"encoder.0.weight", "decoder.2.bias"} <= {
        r.site for r in watching.measurements if r.metric == "update_ratio"
    }
    assert watching.activations == {"encoder.1": "gelu", "decoder.1": "relu"}
    assert {s.name for s in watching.sites} >= {"encoder.0", "encoder.output", "decoder.2"}
    nv.watch([one, two]).close()


def test_a_list_names_parts_by_their_place():
    one, two = encoder(), decoder()
    with nv.watch([one, two], every=1, vitals=["gates"]) as watching:
        train(lambda x: F.mse_loss(two(one(x)), x), [*one.parameters(), *two.parameters()])
    assert {r.site for r in watching.measurements if r.vital == "gates"} == {"0.1", "1.1", "model"}


def test_parts_read_as_they_would_alone():
    torch.manual_seed(0)
    model = Pair()
    alone = copy.deepcopy(model.encoder)
    x = torch.randn(5, 6)
    with nv.watch(model, every=1, vitals=["gates"]) as together, nv.watch(alone, every=1, vitals=["gates"]) as single:
        model.loss(x)
        alone(x).sum()
        together.step()
        single.step()
    numbers = {(r.site, r.metric): r.value for r in together.measurements}
    by_site = [r for r in single.measurements if r.site != "model"]
    assert by_site and all(numbers[f"encoder.{r.site}", r.metric] == r.value for r in by_site)


def test_a_model_without_a_forward():
    model = Pair()
    with nv.watch(model, every=1, vitals=["gates"]) as watching:
        train(model.loss, model.parameters())
    assert {r.site for r in watching.measurements if r.vital == "gates"} == {"encoder.1", "decoder.1", "model"}
    assert "one by one" in watching.skipped["anatomy"]


def test_a_part_outside_the_forward_of_its_model_is_seen_too():
    class WithHead(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = encoder(), nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 1))

        def forward(self, x):
            return self.body(x)

    model = WithHead()
    with nv.watch(model, every=1, vitals=["gates"]) as watching:
        train(lambda x: model.head(model(x)).square().mean(), model.parameters())
    sites = {r.site for r in watching.measurements if r.vital == "gates"}
    assert sites == {"body.1", "head.1", "model"}
    assert len({r.step for r in watching.measurements if r.site == "head.1"}) == 3


def test_a_checkpointed_part_is_no_root():
    class Saves(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = encoder(), nn.Linear(8, 6)

        def forward(self, x):
            return self.head(checkpoint(self.body, x, use_reentrant=False))

    model = Saves()
    with nv.watch(model, every=1, vitals=["gates"]) as watching:
        train(lambda x: F.mse_loss(model(x), x), model.parameters())
    assert sorted((r.step, r.site) for r in watching.measurements if r.metric == "density") == sorted(
        {(r.step, r.site) for r in watching.measurements if r.metric == "density"}
    )
    assert watching._observer._parts == {}


def test_what_is_no_module_gets_a_sentence():
    with pytest.raises(TypeError, match="a str among them"):
        nv.watch([encoder(), "decoder"])
    with pytest.raises(TypeError, match="got none"):
        nv.watch([])


@pytest.mark.parametrize("watched", [True, False])
def test_training_of_two_models_is_the_same(watched):
    results = []
    for begin in (False, True):
        torch.manual_seed(0)
        model = Pair()
        watching = nv.watch([model.encoder, model.decoder] if watched else model, every=1) if begin else None
        train(model.loss, model.parameters(), steps=4)
        if watching is not None:
            watching.close()
        assert not [h for m in model.modules() for h in (*m._forward_hooks, *m._forward_pre_hooks)]
        results.append([*(p.detach().clone() for p in model.parameters()), torch.get_rng_state()])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
