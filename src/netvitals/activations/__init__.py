"""What an activation is, and what theory says of it before any training."""

from netvitals.activations.classes import ActivationClass, classify, phi, phi_closed
from netvitals.activations.derivatives import derivative, derivative_pair
from netvitals.activations.expansion import Smoothness, smoothness, taylor
from netvitals.activations.functions import (
    BSiLU,
    Centered,
    Function,
    Polynomial,
    Squared,
    StiffSigmoid,
    ZeroMean,
    b_silu,
)
from netvitals.activations.ignored import IGNORED
from netvitals.activations.lookalike import look_alike
from netvitals.activations.moments import expect, gauss_hermite, hermite_coefficients, moment
from netvitals.activations.recognise import (
    ELEMENTWISE,
    FUNCTIONAL,
    MODULES,
    functional_spec,
    is_activation,
    is_elementwise,
    spec_of,
)
from netvitals.activations.registry import canonical, formula, get, names
from netvitals.activations.sparse import QuantileReLU, TopK, kth, quantile_relu, topk_mask
from netvitals.activations.surrogate import NoisyReLU, SugarBSiLU, noisy_relu, sugar_b_silu
from netvitals.activations.table import ACTIVATIONS, MIXING, Activation
from netvitals.activations.theory import Constants, constants
from netvitals.activations.thresholds import Crossings, crossings

__all__ = [
    "ACTIVATIONS",
    "ELEMENTWISE",
    "FUNCTIONAL",
    "IGNORED",
    "MIXING",
    "MODULES",
    "Activation",
    "ActivationClass",
    "BSiLU",
    "Centered",
    "Constants",
    "Crossings",
    "Function",
    "NoisyReLU",
    "Polynomial",
    "QuantileReLU",
    "Smoothness",
    "Squared",
    "StiffSigmoid",
    "SugarBSiLU",
    "TopK",
    "ZeroMean",
    "b_silu",
    "canonical",
    "classify",
    "constants",
    "crossings",
    "derivative",
    "derivative_pair",
    "expect",
    "formula",
    "functional_spec",
    "gauss_hermite",
    "get",
    "hermite_coefficients",
    "is_activation",
    "is_elementwise",
    "kth",
    "look_alike",
    "moment",
    "names",
    "noisy_relu",
    "phi",
    "phi_closed",
    "quantile_relu",
    "smoothness",
    "spec_of",
    "sugar_b_silu",
    "taylor",
    "topk_mask",
]
