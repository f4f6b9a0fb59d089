"""Norms a user can swap in, and model surgery."""

from netvitals.activations import TopK
from netvitals.layers.norms import PerPosition, PerToken, norm, norm_names
from netvitals.layers.quantile_batch import (
    QuantileBatchNorm1d,
    QuantileBatchNorm2d,
    QuantileMeanBatchNorm1d,
    QuantileMeanBatchNorm2d,
)
from netvitals.layers.quantile_layer import BatchNorm1dPreStop, BatchNorm2dPreStop, LayerNormPreStop, QuantileLayerNorm

__all__ = [
    "BatchNorm1dPreStop", "BatchNorm2dPreStop", "LayerNormPreStop", "PerPosition", "PerToken", "QuantileBatchNorm1d",
    "QuantileBatchNorm2d", "QuantileLayerNorm", "QuantileMeanBatchNorm1d", "QuantileMeanBatchNorm2d", "TopK", "norm",
    "norm_names",
]
