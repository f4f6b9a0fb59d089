"""Slopes with errors, correlations, effective rank, order statistics and histograms of magnitudes."""

from netvitals.stats.correlation import Correlation, pearson, spearman
from netvitals.stats.line import Slope, local_slopes, loglog_slope, slope
from netvitals.stats.spectrum import EffectiveRank, effective_rank

__all__ = [
    "Correlation",
    "EffectiveRank",
    "Slope",
    "effective_rank",
    "local_slopes",
    "loglog_slope",
    "pearson",
    "slope",
    "spearman",
]
