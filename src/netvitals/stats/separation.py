"""How well do labels separate points? Silhouette, and cross-validated area under the ROC curve."""

from __future__ import annotations

from typing import Any

import numpy as np

from netvitals.stats._sample import numbers
from netvitals.stats.average import Mean


def silhouette(points: Any, labels: Any | None = None, *, clusters: int = 2, seed: int = 0) -> float:
    """Mean silhouette of a labelling; without labels, of k-means with ``clusters`` clusters.

    >>> round(silhouette([0.0, 0.1, 5.0, 5.1]), 2)
    0.98
    """
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    x = numbers(points)
    x = x.reshape(len(x), -1)
    if labels is None:
        if len(x) <= clusters:
            raise ValueError(f"silhouette: {len(x)} points are too few for {clusters} clusters")
        labels = KMeans(clusters, n_init=10, random_state=seed).fit_predict(x)
    kinds = len(np.unique(labels))
    if not 2 <= kinds < len(x):
        raise ValueError(f"silhouette: needs between 2 and {len(x) - 1} different labels, got {kinds}")
    return float(silhouette_score(x, labels))


def cross_validated_auc(x: Any, y: Any, *, folds: int = 5, seed: int = 0) -> Mean:
    """Area under the ROC curve of a standardised logistic regression, averaged over stratified folds.

    >>> cross_validated_auc(list(range(20)), [0] * 10 + [1] * 10, folds=2).value
    1.0
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    target = np.asarray(y).astype(int)
    features = numbers(x).reshape(target.size, -1)
    counts = np.unique(target, return_counts=True)[1]
    if counts.size != 2 or counts.min() < folds:
        raise ValueError(
            f"AUC: needs two outcomes with at least {folds} cases each for {folds} folds, got counts {counts.tolist()}"
        )
    scores = cross_val_score(
        make_pipeline(StandardScaler(), LogisticRegression()),
        features,
        target,
        cv=StratifiedKFold(folds, shuffle=True, random_state=seed),
        scoring="roc_auc",
    )
    return Mean(float(scores.mean()), float(scores.std(ddof=1) / folds**0.5), folds)
