"""A user's own module counts as an activation when it acts on each element alone, and only then."""

import pytest
import torch
from torch import nn

from netvitals.capture import observe


class Swish(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)


class Cube(nn.Module):
    """Works in place and is not known to do so."""

    def forward(self, x):
        return x.pow_(3)


class Noisy(nn.Module):
    """Draws random numbers and counts its calls in a buffer; elementwise by declaration."""

    elementwise = True

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return torch.relu(x + torch.randn_like(x))


class Standardise(nn.Module):
    def forward(self, x):
        return (x - x.mean()) / x.std()


class TopKAct(nn.Module):
    def forward(self, x):
        return x * (x >= x.topk(2, -1).values[..., -1:])


class Scale(nn.Module):
    def forward(self, x):
        return 0.5 * x


class Halves(nn.Module):
    def forward(self, x):
        return nn.functional.silu(x[..., :2]) * x[..., 2:]


class Learned(nn.Module):
    def __init__(self):
        super().__init__()
        self.beta = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return x * torch.sigmoid(self.beta * x)


class Refused(Swish):
    elementwise = False


class Picky(nn.Module):
    def forward(self, x):
        if x.grad_fn is None:
            raise RuntimeError("only inside the model")
        return x.tanh()


def found(act, echo):
    model = nn.Sequential(nn.Linear(3, 4), act)
    return observe(model, None, torch.randn(6, 3), vitals=[echo], mode="train")


def activations(act, echo):
    return [s.name for s in found(act, echo).sites if s.kind == "activation"]


def test_an_elementwise_module_is_an_activation_and_its_inside_is_not(echo):
    assert activations(Swish(), echo) == ["1"]


def test_an_undeclared_in_place_module_keeps_its_input(echo):
    model, x = nn.Sequential(nn.Linear(3, 4), Cube()), torch.randn(6, 3)
    values = {
        r.metric: r.value for r in observe(model, None, x, vitals=[echo], mode="train").measurements if r.site == "1"
    }
    z = model[0](x).detach()
    assert values["slope"] == pytest.approx(float((3 * z**2).mean()), rel=1e-5)
    assert values["a"] == pytest.approx(float((z**3).mean()), rel=1e-5)


@pytest.mark.parametrize("act", [Standardise(), Scale(), nn.Dropout(0.5), nn.Identity(), nn.Flatten(), TopKAct()])
def test_what_mixes_or_only_scales_is_none(act, echo):
    assert activations(act, echo) == []


def test_one_that_compares_with_its_neighbours_is_listed(echo):
    assert set(found(TopKAct(), echo).skipped) == {"1.ge()", "1.topk()", "1.mul()"}
    assert list(found(Standardise(), echo).skipped) == ["1.div()"]


@pytest.mark.parametrize(
    ("act", "name"),
    [(Halves(), "1.silu()"), (Learned(), "1"), (Refused(), "1.silu()"), (Picky(), "1")],
)
def test_a_module_counts_where_it_is_one_function_of_its_input_else_what_it_calls(act, name, echo):
    assert activations(act, echo) == [name]


def test_our_own_activations_count_with_all_their_parts(echo):
    from netvitals import activations as memory

    for spec in ("relu2", "gelu2:15", "topk:gelu:0.75", "centered:softplus", "sigmoid:40", "identity"):
        assert activations(memory.get(spec), echo) == ["1"], spec


def test_a_noisy_activation_is_replayed_with_its_own_noise_and_nobody_notices(echo):
    from netvitals.capture import Observer, Recorder, Schedule

    noisy = Noisy()
    model, x = nn.Sequential(nn.Linear(3, 4), noisy), torch.randn(50, 3)
    schedule = Schedule([echo])
    schedule.select(0)
    observer, recorder = Observer(model, schedule), Recorder(0)

    torch.manual_seed(1)
    plain = model(x)
    after, calls = torch.get_rng_state(), noisy.calls.clone()
    noisy.calls.zero_()
    torch.manual_seed(1)
    observer.arm(recorder)
    watched = model(x)
    assert torch.equal(torch.get_rng_state(), after) and torch.equal(noisy.calls, calls)
    observer.disarm()
    assert torch.equal(watched, plain)
    values = {r.metric: r.value for r in recorder.measurements()[0] if r.site == "1"}
    # the slope of the very noise that ran: 1 exactly where the output is positive
    assert values["slope"] == pytest.approx(float((plain > 0).float().mean()), abs=1e-6)
