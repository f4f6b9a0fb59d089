"""Tests, intervals and fits for the verdicts: thin, over scipy, loaded when used.

Every test takes one number per independent run. Epochs within one run are not independent: reduce them to one number
first (a trend, a displacement), or name the run in ``groups`` where resampling is involved.
"""

from netvitals.stats import (
    EffectiveRank,
    Mean,
    Slope,
    TwoSegments,
    effective_rank,
    local_slopes,
    loglog_slope,
    mean,
    slope,
    two_segments,
)
from netvitals.stats.correlation import Correlation, pearson, spearman
from netvitals_lab.stats.comparison import Anova, PairedT, Wilcoxon, anova, cohens_d, paired_t, wilcoxon
from netvitals_lab.stats.regression import Logistic, logistic
from netvitals_lab.stats.resampling import Interval, bootstrap
from netvitals_lab.stats.separation import cross_validated_auc, silhouette
from netvitals_lab.stats.sign import SignTest, sign_test

__all__ = [
    "Anova",
    "Correlation",
    "EffectiveRank",
    "Interval",
    "Logistic",
    "Mean",
    "PairedT",
    "SignTest",
    "Slope",
    "TwoSegments",
    "Wilcoxon",
    "anova",
    "bootstrap",
    "cohens_d",
    "cross_validated_auc",
    "effective_rank",
    "local_slopes",
    "logistic",
    "loglog_slope",
    "mean",
    "paired_t",
    "pearson",
    "sign_test",
    "silhouette",
    "slope",
    "spearman",
    "two_segments",
    "wilcoxon",
]
