"""How well do labels separate points? Silhouette, and cross-validated area under the ROC curve."""

from __future__ import annotations

from typing import Any

import numpy as np

from netvitals.stats import Mean
from netvitals.stats._sample import numbers

STARTS = 10  # of k-means; the tightest fit counts


def silhouette(points: Any, labels: Any | None = None, *, clusters: int = 2, seed: int = 0) -> float:
    r"""Mean over the points of $(b - a)/\max(a, b)$: $a$ the mean distance to the others of one's own cluster, $b$ that
    to the nearest other cluster; 0 for a point that is alone in its cluster.

    Args:
        points: numbers or rows of numbers.
        labels: the cluster of each point; without them, those of k-means.
        clusters: how many clusters k-means looks for.
        seed: of its starts.

    Returns:
        A number between −1 and 1.

    >>> round(silhouette([0.0, 0.1, 5.0, 5.1]), 2)
    0.98
    """
    from scipy.spatial.distance import cdist

    x = numbers(points)
    x = x.reshape(len(x), -1)
    if labels is None:
        if len(x) <= clusters:
            raise ValueError(f"silhouette: {len(x)} points are too few for {clusters} clusters")
        labels = _clustered(x, clusters, seed)
    kinds, member = np.unique(labels, return_inverse=True)
    if not 2 <= len(kinds) < len(x):
        raise ValueError(f"silhouette: needs between 2 and {len(x) - 1} different labels, got {len(kinds)}")
    sizes = np.bincount(member)
    to_cluster = cdist(x, x) @ np.eye(len(kinds))[member]  # summed distance of each point to each cluster
    rows = np.arange(len(x))
    own = to_cluster[rows, member] / np.maximum(sizes[member] - 1, 1)
    means = to_cluster / sizes
    means[rows, member] = np.inf
    nearest = means.min(axis=1)
    larger = np.maximum(own, nearest)
    score = np.divide(nearest - own, larger, out=np.zeros(len(x)), where=(larger > 0) & (sizes[member] > 1))
    return float(score.mean())


def cross_validated_auc(x: Any, y: Any, *, folds: int = 5, seed: int = 0) -> Mean:
    r"""Area under the ROC curve of a standardised logistic regression (ridge of weight 1/2), averaged over stratified
    folds.

    Args:
        x: one row of features per case; a single feature may come as a flat sequence.
        y: the outcome of each case, 0 or 1.
        folds: how many parts the cases are split into.
        seed: of the split.

    Returns:
        The mean over the folds with its standard error.

    >>> cross_validated_auc(list(range(20)), [0] * 10 + [1] * 10, folds=2).value
    1.0
    """
    target = np.asarray(y).astype(int)
    features = numbers(x).reshape(target.size, -1)
    counts = np.unique(target, return_counts=True)[1]
    if counts.size != 2 or counts.min() < folds:
        raise ValueError(
            f"AUC: needs two outcomes with at least {folds} cases each for {folds} folds, got counts {counts.tolist()}"
        )
    fold = _stratified(target, folds, np.random.default_rng(seed))
    scores = np.array([_held_out_auc(features, target, fold == k) for k in range(folds)])
    return Mean(float(scores.mean()), float(scores.std(ddof=1) / folds**0.5), folds)


def _clustered(x: np.ndarray, clusters: int, seed: int) -> np.ndarray:
    """The labels of the tightest of several k-means fits."""
    from scipy.cluster.vq import kmeans2

    rng = np.random.default_rng(seed)
    fits = [kmeans2(x, clusters, iter=100, minit="++", seed=rng) for _ in range(STARTS)]
    return min(fits, key=lambda fit: float(((x - fit[0][fit[1]]) ** 2).sum()))[1]


def _stratified(target: np.ndarray, folds: int, rng: np.random.Generator) -> np.ndarray:
    """A fold for each case, so that every fold has its share of each outcome."""
    fold = np.empty(target.size, dtype=int)
    for kind in np.unique(target):
        rows = rng.permutation(np.flatnonzero(target == kind))
        fold[rows] = np.arange(rows.size) % folds
    return fold


def _held_out_auc(features: np.ndarray, target: np.ndarray, held: np.ndarray) -> float:
    r"""$P(s_+ > s_-) + P(s_+ = s_-)/2$ of the scores on the held-out cases: the Mann–Whitney form of the area."""
    from scipy.stats import rankdata

    spread = features[~held].std(axis=0)
    scaled = (features - features[~held].mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    scores, outcome = scaled[held] @ _ridge_logistic(scaled[~held], target[~held]), target[held] == target.max()
    above = rankdata(scores)[outcome].sum() - outcome.sum() * (outcome.sum() + 1) / 2
    return float(above / (outcome.sum() * (~outcome).sum()))


def _ridge_logistic(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    r"""The weights of $\min_{w, b} \tfrac12\|w\|^2 + \sum_i \log(1 + e^{-s_i(w \cdot x_i + b)})$ with $s_i = \pm 1$."""
    from scipy.optimize import minimize
    from scipy.special import expit

    sign = np.where(y == y.max(), 1.0, -1.0)

    def loss(p: np.ndarray) -> tuple[float, np.ndarray]:
        margin = sign * (x @ p[:-1] + p[-1])
        pull = -sign * expit(-margin)
        value = 0.5 * p[:-1] @ p[:-1] + np.logaddexp(0.0, -margin).sum()
        return float(value), np.append(p[:-1] + x.T @ pull, pull.sum())

    return minimize(loss, np.zeros(x.shape[1] + 1), jac=True, method="L-BFGS-B", options={"gtol": 1e-8}).x[:-1]
