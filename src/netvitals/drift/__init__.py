"""Weight drift: where the weights go, why, what it costs, and how to steer it.

If unsure, use :func:`euler` (does the push towards zero persist?), :func:`sparsity` and :func:`spikes` (over a whole
data set). ``weight_drift``, ``gradient_signs``, ``covariance_split`` and the ``tensor_…`` functions are for tensors,
``theory`` holds the closed forms, ``dial`` and ``suppression`` change a model. While a model trains: the vital signs
``drift``, ``sparsity``, ``spikes``, ``stream`` and ``gradients``.
"""

from netvitals.drift import dial, suppression, theory
from netvitals.drift.dial import Dial, expected_sparsity, push, set_drift
from netvitals.drift.euler_identity import Euler, euler
from netvitals.drift.signs import CovarianceSplit, GradientSigns, covariance_split, gradient_signs
from netvitals.drift.sparsity_meter import LayerFlops, SiteSparsity, SparsityReport
from netvitals.drift.sparsity_meter import measure as sparsity
from netvitals.drift.spike_meter import SiteSpikes, SpikeReport, amplification, intermediate_peak
from netvitals.drift.spike_meter import measure as spikes
from netvitals.drift.spike_meter import spikes as tensor_spikes
from netvitals.drift.suppression import Suppression, centre_activations, centre_weights, centred, project_gradients
from netvitals.drift.tensors import (
    StreamProfile,
    TensorSparsity,
    Update,
    stream_profile,
    tensor_sparsity,
    update_norms,
)
from netvitals.drift.weights import Role, WeightDrift, role, weight_drift

__all__ = [
    "CovarianceSplit",
    "Dial",
    "Euler",
    "GradientSigns",
    "LayerFlops",
    "Role",
    "SiteSparsity",
    "SiteSpikes",
    "SparsityReport",
    "SpikeReport",
    "StreamProfile",
    "Suppression",
    "TensorSparsity",
    "Update",
    "WeightDrift",
    "amplification",
    "centre_activations",
    "centre_weights",
    "centred",
    "covariance_split",
    "dial",
    "euler",
    "expected_sparsity",
    "gradient_signs",
    "intermediate_peak",
    "project_gradients",
    "push",
    "role",
    "set_drift",
    "sparsity",
    "spikes",
    "stream_profile",
    "suppression",
    "tensor_sparsity",
    "tensor_spikes",
    "theory",
    "update_norms",
    "weight_drift",
]
