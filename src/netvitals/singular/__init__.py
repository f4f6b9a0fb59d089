"""Dead directions: Fisher degeneracy, KL order, K-FAC rates, learning coefficients."""

from netvitals.singular.chains import ChainHealth
from netvitals.singular.crossing import Crossing, eps_scan, recover_crossing
from netvitals.singular.evidence import WAIC, WatanabeTriple, waic, wbic
from netvitals.singular.fluctuation import FluctuationMC, functional_variance_mc, nu, nu_data_free, nu_frozen
from netvitals.singular.geometry import (
    RateChain,
    high_curvature_volume,
    mean_map_metric,
    order_from_fisher,
    rate_chain,
    sectional_curvature,
)
from netvitals.singular.learning_coefficient import LLC, learning_coefficient
from netvitals.singular.likelihood import Categorical, Gaussian, Labelled, monte_carlo
from netvitals.singular.order import KLOrder, ScoreExpansion, directional_fisher, kl_along, kl_order, score_expansion
from netvitals.singular.rates import RateFit, rate_fit
from netvitals.singular.rlct import rlct_additive, rlct_crossing, rlct_reduced_rank, rlct_single
from netvitals.singular.volume import VolumeScan, eps_scan_volume, tied_crossing_volume

__all__ = ["Categorical", "ChainHealth", "Crossing", "FluctuationMC", "Gaussian", "KLOrder", "LLC", "Labelled",
           "RateChain", "RateFit", "ScoreExpansion", "VolumeScan", "WAIC", "WatanabeTriple", "directional_fisher",
           "eps_scan", "eps_scan_volume", "functional_variance_mc", "high_curvature_volume", "kl_along", "kl_order",
           "learning_coefficient", "mean_map_metric", "monte_carlo", "nu", "nu_data_free", "nu_frozen",
           "order_from_fisher", "rate_chain", "rate_fit", "recover_crossing", "rlct_additive", "rlct_crossing",
           "rlct_reduced_rank", "rlct_single", "score_expansion", "sectional_curvature", "tied_crossing_volume",
           "waic", "wbic"]
