"""Norms a user can swap in, and model surgery."""

from netvitals.activations import TopK
from netvitals.layers.norms import PerPosition, PerToken, norm
from netvitals.layers.quantile_batch import (
    QuantileBatchNorm1d,
    QuantileBatchNorm2d,
    QuantileMeanBatchNorm1d,
    QuantileMeanBatchNorm2d,
)
from netvitals.layers.quantile_layer import BatchNorm1dPreStop, BatchNorm2dPreStop, LayerNormPreStop, QuantileLayerNorm
from netvitals.layers.replacement import Replaced, Surgery
from netvitals.layers.source import functional_activations
from netvitals.layers.surgery import relufy, replace_activation
from netvitals.layers.swap import replace_linear, replace_norm

__all__ = [
    "BatchNorm1dPreStop",
    "BatchNorm2dPreStop",
    "LayerNormPreStop",
    "PerPosition",
    "PerToken",
    "QuantileBatchNorm1d",
    "QuantileBatchNorm2d",
    "QuantileLayerNorm",
    "QuantileMeanBatchNorm1d",
    "QuantileMeanBatchNorm2d",
    "Replaced",
    "Surgery",
    "TopK",
    "functional_activations",
    "norm",
    "relufy",
    "replace_activation",
    "replace_linear",
    "replace_norm",
]
