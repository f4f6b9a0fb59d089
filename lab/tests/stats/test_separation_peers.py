"""Silhouette and AUC against scikit-learn, which the core does without."""

import numpy as np
import pytest

from netvitals_lab import stats
from netvitals_lab.stats.separation import _stratified


@pytest.mark.parametrize("kinds", [2, 3, 5])
def test_the_silhouette_of_labels_is_that_of_scikit_learn(kinds):
    from sklearn.metrics import silhouette_score

    rng = np.random.default_rng(kinds)
    points = rng.normal(size=(60, 3)) + 2 * rng.integers(0, kinds, 60)[:, None]
    labels = rng.integers(0, kinds, 60)
    labels[0] = kinds  # alone in its cluster: counts as 0
    assert stats.silhouette(points, labels) == pytest.approx(silhouette_score(points, labels), abs=1e-12)


def test_k_means_finds_clusters_as_tight_as_those_of_scikit_learn():
    from sklearn.cluster import KMeans

    points = np.concatenate([np.random.default_rng(i).normal(c, 0.3, (15, 2)) for i, c in enumerate((0, 2, 4))])
    theirs = KMeans(3, n_init=10, random_state=0).fit_predict(points)
    assert stats.silhouette(points, clusters=3) == pytest.approx(stats.silhouette(points, theirs), abs=1e-9)


def test_the_auc_is_that_of_scikit_learns_logistic_regression_on_the_same_folds():
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import PredefinedSplit, cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 4)) * (1, 10, 0.1, 3)
    y = (x[:, 0] + rng.normal(size=120) > 0.3).astype(int)
    folds = _stratified(y, 5, np.random.default_rng(3))
    model = make_pipeline(StandardScaler(), LogisticRegression(tol=1e-8, max_iter=1000))
    theirs = cross_val_score(model, x, y, cv=PredefinedSplit(folds), scoring="roc_auc")
    ours = stats.cross_validated_auc(x, y, folds=5, seed=3)
    assert ours.value == pytest.approx(theirs.mean(), abs=1e-9)
    assert ours.stderr == pytest.approx(theirs.std(ddof=1) / 5**0.5, abs=1e-9)


def test_every_fold_has_its_share_of_both_outcomes():
    y = np.array([0] * 33 + [1] * 12)
    folds = _stratified(y, 5, np.random.default_rng(0))
    for kind, total in ((0, 33), (1, 12)):
        counts = np.bincount(folds[y == kind], minlength=5)
        assert counts.sum() == total and counts.max() - counts.min() <= 1
