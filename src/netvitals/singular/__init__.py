"""Dead directions: Fisher degeneracy, KL order, K-FAC rates, learning coefficients."""

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
from netvitals.singular.rlct import rlct_additive, rlct_crossing, rlct_reduced_rank, rlct_single
from netvitals.singular.volume import VolumeScan, eps_scan_volume, tied_crossing_volume

__all__ = ["FluctuationMC", "RateChain", "VolumeScan", "WAIC", "WatanabeTriple", "eps_scan_volume",
           "functional_variance_mc", "high_curvature_volume", "mean_map_metric", "nu", "nu_data_free", "nu_frozen",
           "order_from_fisher", "rate_chain", "rlct_additive", "rlct_crossing", "rlct_reduced_rank", "rlct_single",
           "sectional_curvature", "tied_crossing_volume", "waic", "wbic"]
