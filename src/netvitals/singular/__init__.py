"""Dead directions: Fisher degeneracy, KL order, K-FAC rates, learning coefficients."""

from netvitals.singular import zoo
from netvitals.singular.adapter import LowRank, Placement, TangentialLoRA, tangential_lora
from netvitals.singular.architecture import AttentionChain, Chain, SwiGLUStack
from netvitals.singular.attention import ValueOutput, value_output
from netvitals.singular.builders import Autoencoder, BlockPair, DiagonalNet, Memorised, PreNormProbe, Superposition
from netvitals.singular.chains import ChainHealth
from netvitals.singular.cross_entropy import SoftmaxHead, softmax_head, without_logit_shift
from netvitals.singular.crossing import Crossing, eps_scan, recover_crossing
from netvitals.singular.crossover import Crossover, rotation_crossover
from netvitals.singular.evidence import WAIC, WatanabeTriple, waic, wbic
from netvitals.singular.examination import Examination, examination
from netvitals.singular.factors import (
    Factor,
    dead_entry,
    joint_mode,
    kronecker_lift,
    lambda_min,
    schur_complement,
    schur_constant,
)
from netvitals.singular.fibre import (
    QuotientFisher,
    horizontal,
    log_metric,
    normal_bundle,
    quotient_fisher,
    subfamily,
    vertical,
)
from netvitals.singular.fluctuation import FluctuationMC, functional_variance_mc, nu, nu_data_free, nu_frozen
from netvitals.singular.freeze_probe import Ladder, freeze_probe
from netvitals.singular.geometry import (
    RateChain,
    high_curvature_volume,
    mean_map_metric,
    order_from_fisher,
    rate_chain,
    sectional_curvature,
)
from netvitals.singular.history import CoefficientHistory, coefficient_history
from netvitals.singular.kfac import KFAC, kfac
from netvitals.singular.layernorm import KernelTest, LNFiniteT, ln_finite_t, ln_kernel, ln_kernel_test, ln_reset_rate
from netvitals.singular.learning_coefficient import LLC, learning_coefficient
from netvitals.singular.likelihood import Categorical, Gaussian, Labelled, monte_carlo
from netvitals.singular.monitor import KFACFloor, Orders, StreamFloor
from netvitals.singular.nature import Nature, along, gauge_or_singular
from netvitals.singular.order import KLOrder, ScoreExpansion, directional_fisher, kl_along, kl_order, score_expansion
from netvitals.singular.prediction import Rates, compose_blocks, predict_rates, residual_distance
from netvitals.singular.rates import RateFit, rate_fit
from netvitals.singular.readout import Candidate, Readout, readout, spectrum_along
from netvitals.singular.rlct import rlct_additive, rlct_crossing, rlct_reduced_rank, rlct_single
from netvitals.singular.schur import SchurProfile, schur_profile, schur_ratios
from netvitals.singular.spectrum import (
    Classified,
    classify_spectrum,
    fisher_matrix,
    fisher_spectrum,
    operational_selection,
)
from netvitals.singular.stream import StreamSigma, sigma_stream
from netvitals.singular.tangent import SafeDirections, SafeSpace, safe_directions
from netvitals.singular.tracker import ChangePoint, Jump, Phase, change_points, condition_jumps, phase
from netvitals.singular.volume import VolumeScan, eps_scan_volume, tied_crossing_volume

__all__ = ["AttentionChain", "Autoencoder", "BlockPair", "Candidate", "Categorical", "Chain", "ChainHealth",
           "ChangePoint", "Classified", "CoefficientHistory", "Crossing", "Crossover", "DiagonalNet", "Examination",
           "Factor", "FluctuationMC", "Gaussian", "Jump", "KFAC", "KFACFloor", "KLOrder", "KernelTest", "LLC",
           "LNFiniteT", "Labelled", "Ladder", "LowRank", "Memorised", "Nature", "Orders", "Phase", "Placement",
           "PreNormProbe", "QuotientFisher", "RateChain", "RateFit", "Rates", "Readout", "SafeDirections", "SafeSpace",
           "SchurProfile", "ScoreExpansion", "SoftmaxHead", "StreamFloor", "StreamSigma", "Superposition",
           "SwiGLUStack", "TangentialLoRA", "ValueOutput", "VolumeScan", "WAIC", "WatanabeTriple", "along",
           "change_points", "classify_spectrum", "coefficient_history", "compose_blocks", "condition_jumps",
           "dead_entry", "directional_fisher", "eps_scan", "eps_scan_volume", "examination", "fisher_matrix",
           "fisher_spectrum", "freeze_probe", "functional_variance_mc", "gauge_or_singular", "high_curvature_volume",
           "horizontal", "joint_mode", "kfac", "kl_along", "kl_order", "kronecker_lift", "lambda_min",
           "learning_coefficient", "ln_finite_t", "ln_kernel", "ln_kernel_test", "ln_reset_rate", "log_metric",
           "mean_map_metric", "monte_carlo", "normal_bundle", "nu", "nu_data_free", "nu_frozen",
           "operational_selection", "order_from_fisher", "phase", "predict_rates", "quotient_fisher", "rate_chain",
           "rate_fit", "readout", "recover_crossing", "residual_distance", "rlct_additive", "rlct_crossing",
           "rlct_reduced_rank", "rlct_single", "rotation_crossover", "safe_directions", "schur_complement",
           "schur_constant", "schur_profile", "schur_ratios", "score_expansion", "sectional_curvature", "sigma_stream",
           "softmax_head", "spectrum_along", "subfamily", "tangential_lora", "tied_crossing_volume", "value_output",
           "vertical", "waic", "wbic", "without_logit_shift", "zoo"]
