"""What each vital sign and each of its numbers means, in one sentence, for the person who reads the page."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Sign:
    """How a vital sign is introduced: title, meaning, the metric shown first, and what each metric is."""

    title: str
    meaning: str
    headline: tuple[str, ...] = ()  # the first of these that was recorded is shown first
    metrics: dict[str, str] = field(default_factory=dict)

    def explain(self, metric: str) -> str:
        """The meaning of a metric; ``density@0.1:site`` is looked up as ``density@``, then by what is before ``:``."""
        for key in (metric, metric.split(":")[0], metric.split("@")[0] + "@" if "@" in metric else metric):
            if key in self.metrics:
                return self.metrics[key]
        return ""


SIGNS: dict[str, Sign] = {
    "gates": Sign(
        "Gates",
        "How much gradient each activation lets through: a gate is |f′(x)|, and density is the share of gates "
        "that are open. A layer that fades is a layer that stops learning.",
        ("density@0.01", "density@0.1", "mean"),
        {
            "density@": "share of gates above the threshold",
            "mean": "mean gate |f′(x)|",
            "q05": "5 % quantile of gates",
            "q50": "median gate",
            "q95": "95 % quantile of gates",
            "variance": "variance of f′(x)",
            "valid": "share of channels whose gates are numbers",
        },
    ),
    "preactivations": Sign(
        "Pre-activations",
        "How the input of each activation is distributed. Where its mean and spread go, the gates follow.",
        ("preact_drift", "sigma", "mean"),
        {
            "mean": "mean input",
            "std": "standard deviation over everything",
            "sigma": "mean over channels of their own standard deviation",
            "mean_spread": "how far channel means lie apart",
            "sigma_spread": "how far channel deviations lie apart",
            "preact_drift": "mean over standard deviation: below zero, inputs lean to the shut side",
            "neg_preact": "share of inputs at or below zero",
            "scale": "mean |γ| of a norm",
            "shift": "mean β of a norm",
        },
    ),
    "sparsity": Sign(
        "Sparsity",
        "How much of an activation's output is zero, or as good as zero. Up to about 70 % it costs little; "
        "beyond, accuracy falls off a cliff.",
        ("hard", "soft"),
        {
            "hard": "share of exact zeros",
            "soft": "share below one hundredth of the largest",
            "soft_abs": "share below one thousandth",
            "neg_preact": "share of inputs at or below zero",
            "dead_units": "share of units that are zero on the whole batch",
            "always_on": "share of units that are zero on nothing",
        },
    ),
    "spikes": Sign(
        "Spikes",
        "Single activations that tower over the rest, and where they sit.",
        ("max_over_mean", "max_abs"),
        {
            "max_abs": "largest |a|",
            "p999": "99.9 % quantile of |a|",
            "max_over_mean": "largest over mean |a|",
            "max_over_median": "largest over median of the non-zero |a|",
            "kurtosis": "fourth moment over squared variance",
            "spike_count": "entries above 20 root mean squares",
            "token": "position of the largest",
            "channel": "channel of the largest",
            "massive": "1 where the largest exceeds 100 and 1000 medians",
            "peak_layer": "which activation holds the largest",
            "intermediate_peak": "1 where it is neither the first nor the last",
        },
    ),
    "drift": Sign(
        "Drift",
        "Where the weights have gone since the start, and where the sign of the gradient sends them next. "
        "⟨o, ∇ℓ⟩ at the output says whether it goes on.",
        ("drift_z", "weight_mean"),
        {
            "weight_mean": "mean entry",
            "weight_std": "standard deviation of entries",
            "norm": "length of the tensor",
            "min": "smallest entry",
            "max": "largest entry",
            "neg_fraction": "share of negative entries",
            "pos_fraction": "share of positive entries",
            "extreme_threshold": "99.9 % quantile of |W|",
            "drift_z": "mean change over the spread of the entries (an effect size)",
            "drift_t": "mean change times √n over its spread (descriptive)",
            "grad_mean_abs": "mean |gradient|",
            "grad_norm": "length of the gradient",
            "g_pos": "mean gradient at active inputs",
            "g_all": "mean gradient at all inputs",
            "rho_pos": "g_pos over mean |g|",
            "rho_all": "g_all over mean |g|",
            "frac_units_pos": "share of units with a positive mean gradient",
            "slope": "Σ a·g / Σ a²",
            "euler": "Σ p·∂ℓ/∂p; at the output ⟨o, ∇ℓ⟩: positive means that the push to zero persists",
            "tot": "mean weight gradient",
            "prod": "its part from the means",
            "cov": "its part from the covariance",
        },
    ),
    "gradients": Sign(
        "Gradients",
        "How hard each parameter is pushed, and how far it moves. Healthy updates are about a "
        "thousandth of the weights.",
        ("update_ratio", "grad_norm", "weight_norm"),
        {
            "grad_norm": "length of the gradient",
            "update_norm": "length of the step",
            "weight_norm": "length of the weights",
            "update_ratio": "step over weights",
        },
    ),
    "imbalance": Sign(
        "Imbalance",
        "How far neighbouring layers have moved apart: ‖Wₗ₊₁‖² − ‖Wₗ‖², which gradient flow conserves "
        "in linear networks.",
        ("relative", "imbalance"),
        {"imbalance": "‖Wₗ₊₁‖² − ‖Wₗ‖² − ‖bₗ‖²", "relative": "the same over the sum of the three, between −1 and 1"},
    ),
    "rank": Sign(
        "Effective rank",
        "How many directions a matrix really uses.",
        ("entropy",),
        {
            "entropy": "exp of the entropy of the singular values",
            "energy": "the same of their squares",
            "stable": "sum of squares over the largest",
            "participation": "squared sum of squares over sum of fourth powers",
        },
    ),
    "stream": Sign(
        "Residual stream",
        "What each block hands on to the next.",
        ("norm",),
        {
            "norm": "mean length of a row",
            "sigma": "standard deviation over everything",
            "rms": "root mean square",
            "growth": "length over that of the block before",
        },
    ),
    "stream_floor": Sign(
        "Floor of the stream",
        "The weakest direction that is still active in the residual stream. Skips carry it "
        "through; where it vanishes, a block cancels it.",
        ("ratio", "sigma_r"),
        {
            "sigma_r": "smallest active singular value",
            "sigma_1": "largest singular value",
            "rank": "number of active directions",
            "ratio": "smallest active singular value over that of the first node",
        },
    ),
    "kfac": Sign(
        "Gradient covariance",
        "Spectrum of G, the covariance of a layer's output gradients over samples. A falling "
        "floor means compression, a jump new outputs.",
        ("condition", "lambda_min"),
        {
            "lambda_min": "smallest eigenvalue above rounding",
            "lambda_max": "largest eigenvalue",
            "condition": "their ratio",
            "trace": "sum of eigenvalues",
            "zeros": "eigenvalues at zero: gauges, and outputs without gradient",
        },
    ),
    "orders": Sign(
        "Order",
        "Of which order the nearest singular direction is: 1 is regular, 2 and more are degenerate.",
        ("order",),
        {
            "order": "largest order found",
            "singular": "singular directions found",
            "lambda": "their contribution to the learning coefficient",
            "distance": "way to the nearest",
        },
    ),
    "gauge_charges": Sign(
        "Gauge drift",
        "How far the optimiser has gone along directions that change nothing.",
        ("orbit_moved",),
        {
            "charge": "conserved quantity of gradient flow",
            "charge_moved": "its change, relative",
            "orbit_moved": "way along the orbit: log scale, or mean of the logits",
        },
    ),
    "schur": Sign(
        "Redundancy of units",
        "How much of each unit's activity the others do not explain.",
        ("share",),
        {
            "share": "median own share",
            "reference": "the same in a network drawn anew",
            "silent": "units without activity",
        },
    ),
    "norm_kernel": Sign(
        "Norm kernels",
        "Whether a norm's output has the direction without variance that centring makes.",
        ("overlap",),
        {
            "overlap": "of the predicted kernel with the empty directions",
            "variance": "along it, relative",
            "passes": "1 where the kernel is there",
        },
    ),
    "value_output": Sign(
        "Attention, V–O",
        "Exponents of the gradients at values and output along a head's weakest direction differ by "
        "two unless something lies between.",
        ("difference",),
        {"difference": "2 where nothing lies between", "weakest": "smallest over largest singular value"},
    ),
    "curvature": Sign(
        "Curvature",
        "How the layers share curvature: each cell of a matrix is the Hessian's block between two places "
        "of the model, row and column; the bars are its diagonal.",
        ("resonance",),
        {
            "resonance": "Frobenius norm of the block",
            "coupling": "the block against the two diagonal ones",
            "stable_rank": "how many directions the block uses",
            "gn_gap": "what Gauss–Newton leaves out, against what it keeps",
        },
    ),
}

ORDER = (
    "gates",
    "preactivations",
    "sparsity",
    "spikes",
    "drift",
    "gradients",
    "imbalance",
    "rank",
    "stream",
    "stream_floor",
    "kfac",
    "orders",
    "gauge_charges",
    "schur",
    "norm_kernel",
    "value_output",
    "curvature",
)


def sign(vital: str) -> Sign:
    """The entry of a vital sign; one that is not known (a user's own) gets its name as title."""
    return SIGNS.get(vital) or Sign(vital.replace("_", " ").capitalize(), "A vital sign of your own.")


def rank(vital: str) -> tuple[int, str]:
    """Where a vital sign stands on the page: the known ones in their order, then others by name."""
    return (ORDER.index(vital) if vital in ORDER else len(ORDER), vital)
