"""Means and slopes with errors, a broken line, correlations, ranks, order statistics and histograms of magnitudes."""

from netvitals.stats.average import Mean, mean
from netvitals.stats.correlation import Correlation, pearson, spearman

# for other packages of netvitals, not public
from netvitals.stats.histogram import MagnitudeHistogram as MagnitudeHistogram
from netvitals.stats.line import Slope, local_slopes, loglog_slope, slope
from netvitals.stats.norms import inner as inner
from netvitals.stats.norms import norm as norm
from netvitals.stats.norms import norms as norms
from netvitals.stats.norms import row_norms as row_norms
from netvitals.stats.order import host_nonzero_median as host_nonzero_median
from netvitals.stats.order import quantile_rank as quantile_rank
from netvitals.stats.order import quantiles as quantiles
from netvitals.stats.order import sampled as sampled
from netvitals.stats.order import upper_quantile as upper_quantile
from netvitals.stats.piecewise import TwoSegments, two_segments
from netvitals.stats.spectrum import DEFINITIONS as DEFINITIONS
from netvitals.stats.spectrum import EffectiveRank, effective_rank
from netvitals.stats.spectrum import spectrum_ranks as spectrum_ranks
from netvitals.stats.spectrum import squared_spectrum as squared_spectrum

__all__ = [
    "Correlation",
    "EffectiveRank",
    "Mean",
    "Slope",
    "TwoSegments",
    "effective_rank",
    "local_slopes",
    "loglog_slope",
    "mean",
    "pearson",
    "slope",
    "spearman",
    "two_segments",
]
