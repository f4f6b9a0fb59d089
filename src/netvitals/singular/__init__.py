"""Dead directions: which directions of a network are degenerate, of what order, and what that says of learning.

If unsure, use :func:`readout`: it looks for dead directions at one checkpoint and says what they contribute.

What runs a model takes ``(model, loss_fn, batch)``, the loss as "ce", "mse" or torch's own; what needs no loss takes
``(model, batch)``. What needs no model is a formula: ``kl_order``, ``nu``, ``rlct_…``, ``predict_rates``.
"""

# one checkpoint, looked at once
# room for a new task
from netvitals.singular.adapters.adapter import TangentialLoRA as TangentialLoRA
from netvitals.singular.adapters.adapter import tangential_lora
from netvitals.singular.adapters.pruning import PruningPlan as PruningPlan
from netvitals.singular.adapters.pruning import pruning_plan
from netvitals.singular.adapters.tangent import SafeDirections as SafeDirections
from netvitals.singular.adapters.tangent import safe_directions
from netvitals.singular.checkpoint.attention import value_output
from netvitals.singular.checkpoint.dead_directions import (  # every measurement below at once
    DeadDirections as DeadDirections,
)
from netvitals.singular.checkpoint.dead_directions import measure
from netvitals.singular.checkpoint.layernorm import ln_kernel_test
from netvitals.singular.checkpoint.rates import RateDeviation as RateDeviation  # against what theory says
from netvitals.singular.checkpoint.rates import rates
from netvitals.singular.checkpoint.readout import Candidate as Candidate
from netvitals.singular.checkpoint.readout import Readout as Readout
from netvitals.singular.checkpoint.readout import check_task as check_task
from netvitals.singular.checkpoint.readout import distance as distance
from netvitals.singular.checkpoint.readout import readout
from netvitals.singular.checkpoint.readout import spectrum_along as spectrum_along

# over a training run
from netvitals.singular.checkpoint.spectra import SpectraHistory as SpectraHistory
from netvitals.singular.checkpoint.spectra import spectra_history
from netvitals.singular.checkpoint.stream import StreamSigma as StreamSigma
from netvitals.singular.checkpoint.stream import inside as inside
from netvitals.singular.checkpoint.stream import sigma_stream
from netvitals.singular.checkpoint.tracker import change_points as change_points
from netvitals.singular.checkpoint.tracker import condition_jumps as condition_jumps
from netvitals.singular.checkpoint.tracker import phase as phase
from netvitals.singular.laws.design import DesignRanking as DesignRanking
from netvitals.singular.laws.design import rank_designs as rank_designs

# what theory says
from netvitals.singular.laws.fluctuation import nu
from netvitals.singular.laws.fluctuation import nu_data_free as nu_data_free
from netvitals.singular.laws.prediction import Rates as Rates
from netvitals.singular.laws.prediction import predict_rates
from netvitals.singular.laws.rlct import rlct_additive, rlct_crossing, rlct_deep_linear, rlct_reduced_rank, rlct_single
from netvitals.singular.moments.kronecker import KFAC as KFAC
from netvitals.singular.moments.kronecker import kfac
from netvitals.singular.moments.schur import schur_profile
from netvitals.singular.networks import zoo  # models with known answers
from netvitals.singular.networks.architecture import AttentionChain as AttentionChain  # what rates are predicted for
from netvitals.singular.networks.architecture import Chain as Chain
from netvitals.singular.networks.architecture import SwiGLUStack as SwiGLUStack
from netvitals.singular.networks.crossed import CrossAttentionChain as CrossAttentionChain
from netvitals.singular.networks.crossed import ProjectedChain as ProjectedChain
from netvitals.singular.orders.crossing import recover_crossing as recover_crossing
from netvitals.singular.orders.nature import along as along
from netvitals.singular.orders.nature import gauge_or_singular

# the order of one direction, for a model given as a function of its parameters
from netvitals.singular.orders.order import KLOrder as KLOrder
from netvitals.singular.orders.order import kl_order
from netvitals.singular.orders.rates import RateFit as RateFit
from netvitals.singular.orders.rates import rate_fit
from netvitals.singular.orders.spectrum import Classified as Classified
from netvitals.singular.orders.spectrum import classify_spectrum
from netvitals.singular.orders.spectrum import fisher_spectrum as fisher_spectrum

# the learning coefficient, by sampling
from netvitals.singular.sampling.coefficient import LLC as LLC
from netvitals.singular.sampling.evidence import WAIC as WAIC
from netvitals.singular.sampling.evidence import WatanabeTriple as WatanabeTriple
from netvitals.singular.sampling.evidence import waic, wbic
from netvitals.singular.sampling.history import CoefficientHistory as CoefficientHistory
from netvitals.singular.sampling.history import PartHistories as PartHistories
from netvitals.singular.sampling.history import coefficient_by_part, coefficient_history
from netvitals.singular.sampling.llc import learning_coefficient

__all__ = [
    "classify_spectrum",
    "coefficient_by_part",
    "coefficient_history",
    "gauge_or_singular",
    "kfac",
    "kl_order",
    "learning_coefficient",
    "ln_kernel_test",
    "measure",
    "nu",
    "predict_rates",
    "pruning_plan",
    "rate_fit",
    "rates",
    "readout",
    "rlct_additive",
    "rlct_crossing",
    "rlct_deep_linear",
    "rlct_reduced_rank",
    "rlct_single",
    "safe_directions",
    "schur_profile",
    "sigma_stream",
    "spectra_history",
    "tangential_lora",
    "value_output",
    "waic",
    "wbic",
    "zoo",
]

# imported from their modules now; the old names go with the next version
_HOMES = {
    "adapters.adapter": "LowRank Placement",
    "adapters.tangent": "SafeSpace",
    "checkpoint.attention": "ValueOutput",
    "checkpoint.layernorm": "KernelTest LNFiniteT ln_finite_t ln_kernel ln_reset_rate",
    "checkpoint.tracker": "ChangePoint Phase",
    "laws.crossover": "Crossover rotation_crossover",
    "laws.fluctuation": "FluctuationMC functional_variance_mc nu_data_free nu_frozen",
    "laws.geometry": "RateChain high_curvature_volume mean_map_metric order_from_fisher rate_chain sectional_curvature",
    "laws.prediction": "compose_blocks residual_distance",
    "laws.volume": "VolumeScan eps_scan_volume tied_crossing_volume",
    "moments.factors": "Factor dead_entry joint_mode kronecker_lift lambda_min schur_complement schur_constant",
    "moments.schur": "SchurProfile schur_ratios",
    "networks.builders": "Autoencoder BlockPair DiagonalNet Memorised PreNormProbe Superposition",
    "networks.ladders": "Ladder freeze_probe",
    "orders.cross_entropy": "SoftmaxHead softmax_head without_logit_shift",
    "orders.crossing": "Crossing eps_scan",
    "orders.fibre": "QuotientFisher horizontal log_metric normal_bundle quotient_fisher subfamily vertical",
    "orders.likelihood": "Categorical Gaussian Labelled monte_carlo",
    "orders.nature": "Nature",
    "orders.order": "ScoreExpansion directional_fisher kl_along score_expansion",
    "orders.spectrum": "fisher_matrix operational_selection",
    "sampling.chains": "ChainHealth",
}
