"""What an activation is, and what theory says of it before any training."""

from netvitals.activations.classes import ActivationClass as ActivationClass
from netvitals.activations.classes import classify
from netvitals.activations.classes import phi as phi
from netvitals.activations.classes import phi_closed as phi_closed
from netvitals.activations.derivatives import derivative
from netvitals.activations.derivatives import derivative_pair as derivative_pair
from netvitals.activations.expansion import Smoothness as Smoothness
from netvitals.activations.expansion import smoothness, taylor
from netvitals.activations.functions import BSiLU, Squared, b_silu
from netvitals.activations.functions import Centered as Centered
from netvitals.activations.functions import Function as Function
from netvitals.activations.functions import Polynomial as Polynomial
from netvitals.activations.functions import StiffSigmoid as StiffSigmoid
from netvitals.activations.functions import ZeroMean as ZeroMean
from netvitals.activations.ignored import IGNORED as IGNORED
from netvitals.activations.lookalike import look_alike
from netvitals.activations.moments import expect, hermite_coefficients, moment
from netvitals.activations.moments import gauss_hermite as gauss_hermite
from netvitals.activations.recognise import ELEMENTWISE as ELEMENTWISE
from netvitals.activations.recognise import FUNCTIONAL as FUNCTIONAL
from netvitals.activations.recognise import MODULES as MODULES
from netvitals.activations.recognise import functional_spec as functional_spec
from netvitals.activations.recognise import is_activation as is_activation
from netvitals.activations.recognise import is_elementwise as is_elementwise
from netvitals.activations.recognise import spec_of as spec_of
from netvitals.activations.registry import canonical as canonical
from netvitals.activations.registry import formula, get, names
from netvitals.activations.sparse import QuantileReLU, quantile_relu
from netvitals.activations.sparse import TopK as TopK
from netvitals.activations.sparse import kth as kth
from netvitals.activations.sparse import topk_mask as topk_mask
from netvitals.activations.surrogate import NoisyReLU, SugarBSiLU, noisy_relu, sugar_b_silu
from netvitals.activations.table import ACTIVATIONS, Activation
from netvitals.activations.table import MIXING as MIXING
from netvitals.activations.theory import Constants as Constants
from netvitals.activations.theory import constants
from netvitals.activations.thresholds import Crossings as Crossings
from netvitals.activations.thresholds import crossings

__all__ = [
    "ACTIVATIONS",
    "Activation",
    "BSiLU",
    "NoisyReLU",
    "QuantileReLU",
    "Squared",
    "SugarBSiLU",
    "b_silu",
    "classify",
    "constants",
    "crossings",
    "derivative",
    "expect",
    "formula",
    "get",
    "hermite_coefficients",
    "look_alike",
    "moment",
    "names",
    "noisy_relu",
    "quantile_relu",
    "smoothness",
    "sugar_b_silu",
    "taylor",
]
