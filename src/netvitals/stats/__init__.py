"""Slopes with errors, correlations, effective rank, order statistics and histograms of magnitudes."""

from netvitals.stats.correlation import Correlation, pearson, spearman

# for other packages of netvitals, not public
from netvitals.stats.histogram import MagnitudeHistogram as MagnitudeHistogram
from netvitals.stats.line import Slope, local_slopes, loglog_slope, slope
from netvitals.stats.spectrum import DEFINITIONS as DEFINITIONS
from netvitals.stats.spectrum import EffectiveRank, effective_rank
from netvitals.stats.spectrum import spectrum_ranks as spectrum_ranks
from netvitals.stats.spectrum import squared_spectrum as squared_spectrum

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
