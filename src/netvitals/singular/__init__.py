"""Dead directions: Fisher degeneracy, KL order, K-FAC rates, learning coefficients."""

from netvitals._moved import moved
from netvitals.singular.adapters.adapter import LowRank, Placement, TangentialLoRA, tangential_lora
from netvitals.singular.adapters.tangent import SafeDirections, SafeSpace, safe_directions
from netvitals.singular.checkpoint.attention import ValueOutput, value_output
from netvitals.singular.checkpoint.examine import Examination, examination
from netvitals.singular.checkpoint.history import CoefficientHistory, coefficient_history
from netvitals.singular.checkpoint.layernorm import (
    KernelTest,
    LNFiniteT,
    ln_finite_t,
    ln_kernel,
    ln_kernel_test,
    ln_reset_rate,
)
from netvitals.singular.checkpoint.one_checkpoint import Candidate, Readout, readout, spectrum_along
from netvitals.singular.checkpoint.stream import StreamSigma, sigma_stream
from netvitals.singular.checkpoint.tracker import ChangePoint, Jump, Phase, change_points, condition_jumps, phase
from netvitals.singular.laws.crossover import Crossover, rotation_crossover
from netvitals.singular.laws.fluctuation import FluctuationMC, functional_variance_mc, nu, nu_data_free, nu_frozen
from netvitals.singular.laws.geometry import (
    RateChain,
    high_curvature_volume,
    mean_map_metric,
    order_from_fisher,
    rate_chain,
    sectional_curvature,
)
from netvitals.singular.laws.prediction import Rates, compose_blocks, predict_rates, residual_distance
from netvitals.singular.laws.rlct import rlct_additive, rlct_crossing, rlct_reduced_rank, rlct_single
from netvitals.singular.laws.volume import VolumeScan, eps_scan_volume, tied_crossing_volume
from netvitals.singular.moments.factors import (
    Factor,
    dead_entry,
    joint_mode,
    kronecker_lift,
    lambda_min,
    schur_complement,
    schur_constant,
)
from netvitals.singular.moments.kronecker import KFAC, kfac
from netvitals.singular.moments.schur import SchurProfile, schur_profile, schur_ratios
from netvitals.singular.networks import zoo
from netvitals.singular.networks.architecture import AttentionChain, Chain, SwiGLUStack
from netvitals.singular.networks.builders import (
    Autoencoder,
    BlockPair,
    DiagonalNet,
    Memorised,
    PreNormProbe,
    Superposition,
)
from netvitals.singular.networks.ladders import Ladder, freeze_probe
from netvitals.singular.orders.cross_entropy import SoftmaxHead, softmax_head, without_logit_shift
from netvitals.singular.orders.crossing import Crossing, eps_scan, recover_crossing
from netvitals.singular.orders.fibre import (
    QuotientFisher,
    horizontal,
    log_metric,
    normal_bundle,
    quotient_fisher,
    subfamily,
    vertical,
)
from netvitals.singular.orders.likelihood import Categorical, Gaussian, Labelled, monte_carlo
from netvitals.singular.orders.nature import Nature, along, gauge_or_singular
from netvitals.singular.orders.order import (
    KLOrder,
    ScoreExpansion,
    directional_fisher,
    kl_along,
    kl_order,
    score_expansion,
)
from netvitals.singular.orders.rates import RateFit, rate_fit
from netvitals.singular.orders.spectrum import (
    Classified,
    classify_spectrum,
    fisher_matrix,
    fisher_spectrum,
    operational_selection,
)
from netvitals.singular.sampling.chains import ChainHealth
from netvitals.singular.sampling.evidence import WAIC, WatanabeTriple, waic, wbic
from netvitals.singular.sampling.llc import LLC, learning_coefficient

__all__ = [
    "AttentionChain",
    "Autoencoder",
    "BlockPair",
    "Candidate",
    "Categorical",
    "Chain",
    "ChainHealth",
    "ChangePoint",
    "Classified",
    "CoefficientHistory",
    "Crossing",
    "Crossover",
    "DiagonalNet",
    "Examination",
    "Factor",
    "FluctuationMC",
    "Gaussian",
    "Jump",
    "KFAC",
    "KLOrder",
    "KernelTest",
    "LLC",
    "LNFiniteT",
    "Labelled",
    "Ladder",
    "LowRank",
    "Memorised",
    "Nature",
    "Phase",
    "Placement",
    "PreNormProbe",
    "QuotientFisher",
    "RateChain",
    "RateFit",
    "Rates",
    "Readout",
    "SafeDirections",
    "SafeSpace",
    "SchurProfile",
    "ScoreExpansion",
    "SoftmaxHead",
    "StreamSigma",
    "Superposition",
    "SwiGLUStack",
    "TangentialLoRA",
    "ValueOutput",
    "VolumeScan",
    "WAIC",
    "WatanabeTriple",
    "along",
    "change_points",
    "classify_spectrum",
    "coefficient_history",
    "compose_blocks",
    "condition_jumps",
    "dead_entry",
    "directional_fisher",
    "eps_scan",
    "eps_scan_volume",
    "examination",
    "fisher_matrix",
    "fisher_spectrum",
    "freeze_probe",
    "functional_variance_mc",
    "gauge_or_singular",
    "high_curvature_volume",
    "horizontal",
    "joint_mode",
    "kfac",
    "kl_along",
    "kl_order",
    "kronecker_lift",
    "lambda_min",
    "learning_coefficient",
    "ln_finite_t",
    "ln_kernel",
    "ln_kernel_test",
    "ln_reset_rate",
    "log_metric",
    "mean_map_metric",
    "monte_carlo",
    "normal_bundle",
    "nu",
    "nu_data_free",
    "nu_frozen",
    "operational_selection",
    "order_from_fisher",
    "phase",
    "predict_rates",
    "quotient_fisher",
    "rate_chain",
    "rate_fit",
    "readout",
    "recover_crossing",
    "residual_distance",
    "rlct_additive",
    "rlct_crossing",
    "rlct_reduced_rank",
    "rlct_single",
    "rotation_crossover",
    "safe_directions",
    "schur_complement",
    "schur_constant",
    "schur_profile",
    "schur_ratios",
    "score_expansion",
    "sectional_curvature",
    "sigma_stream",
    "softmax_head",
    "spectrum_along",
    "subfamily",
    "tangential_lora",
    "tied_crossing_volume",
    "value_output",
    "vertical",
    "waic",
    "wbic",
    "without_logit_shift",
    "zoo",
]

__getattr__ = moved(__name__, {name: f"netvitals.vitals.{name}" for name in ("KFACFloor", "Orders", "StreamFloor")})
