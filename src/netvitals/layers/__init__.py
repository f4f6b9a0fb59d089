"""Norms a user can swap in, and model surgery."""

from netvitals.activations import TopK as TopK
from netvitals.layers.insertion import Normed as Normed
from netvitals.layers.insertion import insert_norm
from netvitals.layers.norms import PerPosition as PerPosition
from netvitals.layers.norms import PerToken as PerToken
from netvitals.layers.norms import norm
from netvitals.layers.quantile_batch import (
    QuantileBatchNorm1d,
    QuantileBatchNorm2d,
    QuantileMeanBatchNorm1d,
    QuantileMeanBatchNorm2d,
)
from netvitals.layers.quantile_layer import BatchNorm1dPreStop, BatchNorm2dPreStop, LayerNormPreStop, QuantileLayerNorm
from netvitals.layers.replacement import Replaced as Replaced
from netvitals.layers.replacement import Surgery as Surgery
from netvitals.layers.source import functional_activations as functional_activations
from netvitals.layers.surgery import relufy, replace_activation
from netvitals.layers.swap import replace_linear, replace_norm

__all__ = [
    "BatchNorm1dPreStop",
    "BatchNorm2dPreStop",
    "LayerNormPreStop",
    "QuantileBatchNorm1d",
    "QuantileBatchNorm2d",
    "QuantileLayerNorm",
    "QuantileMeanBatchNorm1d",
    "QuantileMeanBatchNorm2d",
    "insert_norm",
    "norm",
    "relufy",
    "replace_activation",
    "replace_linear",
    "replace_norm",
]
