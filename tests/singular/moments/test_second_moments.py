"""Second moments of layer inputs against their definition: every row written out, multiplied in float64."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from netvitals.singular.moments.second_moments import gram, input_moment


@pytest.mark.parametrize("width", [1, 127, 128, 131, 300])
def test_gram_is_the_symmetric_product(width):
    rows = torch.randn(50, width, dtype=torch.float64)
    found = gram(rows)
    assert torch.equal(found, found.T) and torch.allclose(found, rows.T @ rows, rtol=1e-12)


def test_gram_of_single_precision_comes_in_double():
    rows = torch.randn(400, 200)
    truth = rows.double().T @ rows.double()
    assert gram(rows).dtype == torch.float64
    assert torch.allclose(gram(rows), truth, atol=1e-5 * float(truth.diagonal().max()))


CONVOLUTIONS = {
    "plain": nn.Conv2d(3, 4, 3, padding=1),
    "stride, dilation": nn.Conv2d(3, 4, (3, 2), stride=(2, 1), dilation=(1, 2), padding=(0, 1)),
    "pointwise": nn.Conv2d(3, 4, 1),
    "one dimension": nn.Conv1d(3, 4, 3, stride=2, padding=2, dilation=2),
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_see_unfolded_patches(name, bias):
    layer = CONVOLUTIONS[name].double()
    x = torch.randn(5, 3, 8, 9, dtype=torch.float64)
    if isinstance(layer, nn.Conv1d):
        x = x[:, :, 0]
        unfolded = F.unfold(
            x.unsqueeze(2),
            (1, layer.kernel_size[0]),
            (1, layer.dilation[0]),
            (0, layer.padding[0]),
            (1, layer.stride[0]),
        )
    else:
        unfolded = F.unfold(x, layer.kernel_size, layer.dilation, layer.padding, layer.stride)
    rows = unfolded.movedim(1, -1).reshape(-1, unfolded.shape[1])
    rows = torch.cat([rows, torch.ones_like(rows[:, :1])], 1) if bias else rows
    assert torch.allclose(input_moment(layer, x, bias), rows.T @ rows / len(rows), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("mode", ["zeros", "circular", "reflect"])
def test_rows_are_in_the_order_of_the_weights_columns_under_any_padding(mode):
    layer = nn.Conv2d(2, 3, 3, padding="same", padding_mode=mode, bias=False).double()
    x = torch.randn(4, 2, 5, 6, dtype=torch.float64)
    outputs, weight = layer(x).movedim(1, -1).reshape(-1, 3), layer.weight.reshape(3, -1)
    assert torch.allclose(weight @ input_moment(layer, x, False) @ weight.T, outputs.T @ outputs / len(outputs))


def test_linear_and_embedding():
    x = torch.randn(6, 4, 5, dtype=torch.float64)
    rows = torch.cat([x.reshape(-1, 5), torch.ones(24, 1, dtype=torch.float64)], 1)
    assert torch.allclose(input_moment(nn.Linear(5, 2), x, True), rows.T @ rows / 24)
    tokens = torch.tensor([[0, 2], [2, 1]])
    assert input_moment(nn.Embedding(3, 4), tokens, False).diagonal().tolist() == [0.25, 0.25, 0.5]
