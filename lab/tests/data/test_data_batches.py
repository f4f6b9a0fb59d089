"""Batches: each example once, in an order of their own; crop and flip against a loop over images."""

import pytest
import torch

from netvitals_lab import data


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_every_example_once_per_epoch():
    for count, size in [(10, 4), (8, 4), (5, 8), (3, 1)]:
        pieces = data.order(count, size, generator())
        assert sorted(torch.cat(pieces).tolist()) == list(range(count))
        assert len(pieces) == data.steps_per_epoch(count, size)


def test_a_last_batch_of_one_is_left_out():
    pieces = data.order(9, 4, generator())
    assert [len(p) for p in pieces] == [4, 4]
    assert data.steps_per_epoch(9, 4) == 2
    assert [len(p) for p in data.order(1, 4, generator())] == [1]


def test_order_is_its_own():
    digits = data.load("digits,train=20")
    torch.manual_seed(1)
    a = [y for _, y in data.batches(digits, 8, generator(3))]
    torch.manual_seed(2)
    b = [y for _, y in data.batches(digits, 8, generator(3))]
    assert all(torch.equal(x, y) for x, y in zip(a, b))
    assert not torch.equal(torch.cat(a), torch.cat([y for _, y in data.batches(digits, 8, generator(4))]))


def test_fresh_batches():
    noise = data.load("noise,inputs=3,count=16")
    pairs = list(data.batches(noise, 8, generator(), fresh=True))
    assert len(pairs) == 2 and not torch.equal(pairs[0][0], pairs[1][0])
    with pytest.raises(ValueError, match="cannot be drawn afresh"):
        next(data.batches(data.load("digits"), 8, generator(), fresh=True))


def test_crop_and_flip_are_shifts_and_mirrors():
    x = torch.randn(40, 2, 6, 5)
    fill = torch.tensor([7.0, -3.0])
    out = data.crop_flip(x, generator(), pad=2, fill=fill)
    wide = fill.view(1, 2, 1, 1).repeat(40, 1, 10, 9)
    wide[:, :, 2:8, 2:7] = x
    seen = set()
    for before, after in zip(wide, out):
        match = [
            (dy, dx, m)
            for dy in range(5)
            for dx in range(5)
            for m in (False, True)
            if torch.allclose(after, (lambda c: c.flip(-1) if m else c)(before[:, dy : dy + 6, dx : dx + 5]), atol=1e-5)
        ]
        assert len(match) == 1
        seen.add(match[0])
    assert len({s[2] for s in seen}) == 2 and len(seen) > 20
    assert data.crop_flip(x, generator(), pad=0).shape == x.shape
    with pytest.raises(ValueError, match="images"):
        data.crop_flip(x.flatten(1), generator())


def test_augmented_batches_pad_with_black():
    digits = data.load("digits,train=20")
    x, _ = next(data.batches(digits, 20, generator(), augment=True))
    assert x.min().item() == pytest.approx(digits.black.item(), abs=1e-5)


@pytest.mark.parametrize("channels", [1, 3])
def test_augmented_images_have_the_strides_of_plain_ones(channels):
    """One channel fits channels-last too: convolutions would take it for that, and run other kernels."""
    x = torch.randn(5, channels, 8, 8)
    assert data.crop_flip(x, generator()).stride() == x.stride()
