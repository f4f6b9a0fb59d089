"""Dead directions: which directions of a network are degenerate, of what order, and what that says of learning.

If unsure, use :func:`readout`: it looks for dead directions at one checkpoint and says what they contribute.

What runs a model takes ``(model, loss_fn, batch)``, the loss as "ce", "mse" or torch's own; what needs no loss takes
``(model, batch)``. What needs no model is a formula: ``kl_order``, ``nu``, ``rlct_…``, ``predict_rates``.
"""

# one checkpoint, looked at once
# room for a new task
from netvitals.singular.adapters.adapter import TangentialLoRA, tangential_lora
from netvitals.singular.adapters.pruning import PruningPlan, pruning_plan
from netvitals.singular.adapters.tangent import SafeDirections, safe_directions
from netvitals.singular.checkpoint.attention import value_output
from netvitals.singular.checkpoint.dead_directions import DeadDirections, measure  # every reading below at once
from netvitals.singular.checkpoint.deviation import RateDeviation, rate_deviation  # against what theory says
from netvitals.singular.checkpoint.layernorm import ln_kernel_test
from netvitals.singular.checkpoint.readout import Candidate, Readout, readout, spectrum_along

# for other packages of netvitals, not public
from netvitals.singular.checkpoint.readout import check_task as check_task
from netvitals.singular.checkpoint.readout import distance as distance

# over a training run
from netvitals.singular.checkpoint.spectra import SpectraHistory, spectra_history
from netvitals.singular.checkpoint.stream import StreamSigma, sigma_stream
from netvitals.singular.checkpoint.stream import inside as inside
from netvitals.singular.checkpoint.tracker import change_points, condition_jumps, phase
from netvitals.singular.laws.design import DesignRanking, rank_designs

# what theory says
from netvitals.singular.laws.fluctuation import nu
from netvitals.singular.laws.fluctuation import nu_data_free as nu_data_free
from netvitals.singular.laws.prediction import Rates, predict_rates
from netvitals.singular.laws.rlct import (
    rlct_additive,
    rlct_crossing,
    rlct_deep_linear,
    rlct_reduced_rank,
    rlct_single,
)
from netvitals.singular.moments.kronecker import KFAC, kfac
from netvitals.singular.moments.schur import schur_profile
from netvitals.singular.networks import zoo  # models with known answers
from netvitals.singular.networks.architecture import AttentionChain, Chain, SwiGLUStack  # what rates are predicted for
from netvitals.singular.networks.crossed import CrossAttentionChain, ProjectedChain
from netvitals.singular.orders.crossing import recover_crossing
from netvitals.singular.orders.nature import along, gauge_or_singular

# the order of one direction, for a model given as a function of its parameters
from netvitals.singular.orders.order import KLOrder, kl_order
from netvitals.singular.orders.rates import RateFit, rate_fit
from netvitals.singular.orders.spectrum import Classified, classify_spectrum, fisher_spectrum

# the learning coefficient, by sampling
from netvitals.singular.sampling.coefficient import LLC
from netvitals.singular.sampling.evidence import WAIC, WatanabeTriple, waic, wbic
from netvitals.singular.sampling.history import (
    CoefficientHistory,
    PartHistories,
    coefficient_by_part,
    coefficient_history,
)
from netvitals.singular.sampling.llc import learning_coefficient

__all__ = [
    "KFAC",
    "LLC",
    "WAIC",
    "AttentionChain",
    "Candidate",
    "Chain",
    "Classified",
    "CoefficientHistory",
    "CrossAttentionChain",
    "DeadDirections",
    "DesignRanking",
    "KLOrder",
    "PartHistories",
    "ProjectedChain",
    "PruningPlan",
    "RateDeviation",
    "RateFit",
    "Rates",
    "Readout",
    "SafeDirections",
    "SpectraHistory",
    "StreamSigma",
    "SwiGLUStack",
    "TangentialLoRA",
    "WatanabeTriple",
    "along",
    "change_points",
    "classify_spectrum",
    "coefficient_by_part",
    "coefficient_history",
    "condition_jumps",
    "fisher_spectrum",
    "gauge_or_singular",
    "kfac",
    "kl_order",
    "learning_coefficient",
    "ln_kernel_test",
    "measure",
    "nu",
    "phase",
    "predict_rates",
    "pruning_plan",
    "rank_designs",
    "rate_deviation",
    "rate_fit",
    "readout",
    "recover_crossing",
    "rlct_additive",
    "rlct_crossing",
    "rlct_deep_linear",
    "rlct_reduced_rank",
    "rlct_single",
    "safe_directions",
    "schur_profile",
    "sigma_stream",
    "spectra_history",
    "spectrum_along",
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
