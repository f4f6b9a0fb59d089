"""The reference values, as the tables print them. A tolerance is one unit of the last digit printed."""

from __future__ import annotations

import math

# z_low(θ), signed crossing, for θ = .001, .005, .01, .05, .10
SIGNED = {
    "gelu": (-0.7494, -0.7403, -0.7290, -0.6459, -0.5543),
    "gelu_tanh": (-0.7501, -0.7409, -0.7296, -0.6463, -0.5546),
    "silu": (-1.2738, -1.2558, -1.2338, -1.0768, -0.9123),
    "mish": (-1.1886, -1.1739, -1.1559, -1.0268, -0.8910),
}
SIGNED_ONE = {
    ("softplus:50", 0.1): -0.0439,
    ("softplus:50", 0.01): -0.0919,
    ("softplus:20", 0.1): -0.1099,
    ("softplus:20", 0.01): -0.2298,
    ("softplus:10", 0.1): -0.2197,
    ("softplus:10", 0.01): -0.4595,
    ("softplus:5", 0.1): -0.4394,
    ("softplus:5", 0.01): -0.9190,
    ("relu", 0.1): 0.0,
    ("leaky_relu:0.01", 0.1): 0.0,
    ("leaky_relu:0.2", 0.1): -math.inf,
}
# inf{z : |f'(z)| > θ} at θ = .01 and .10
LITERAL = {
    "gelu": (-3.0674, -1.8613),
    "gelu_tanh": (-3.0528, -1.8690),
    "silu": (-6.2613, -0.9123),
    "mish": (-6.2639, -2.8274),
}
# lower end of the inactive slit at θ = .01 (its upper end is the signed crossing)
SLIT = {"gelu": -0.7754, "gelu_tanh": -0.7762, "silu": -1.3258, "mish": -1.2310}
# upper end of the active interval on the tail at θ = .10
TAIL = {"gelu": -1.0778, "gelu_tanh": -1.0796, "mish": -1.8334}
# z_low(.10) as the paper's Table 3 prints it
PRINTED = {
    "relu": 0.000,
    "leaky_relu:0.01": 0.000,
    "softplus:50": -0.044,
    "softplus:20": -0.110,
    "softplus:10": -0.219,
    "softplus:5": -0.439,
    "gelu": -0.554,
    "silu": -0.912,
    "mish": -0.891,
}
LEAST_SLOPE = {"gelu": (-1.4142, -0.1289), "mish": (-2.2564, -0.11253), "silu": (-2.3994, -0.09984)}
MINIMUM = {"gelu": (-0.7518, -0.16997), "silu": (-1.2785, -0.27846)}
BUMP = {"gelu": 0.02889, "silu": 0.07754}

# density at θ = .01 and .10: exact under N(0, 1), half-line; exact under N(−.05, .33²), half-line
DENSITY = {
    "relu": ((0.5000, 0.5000), (0.4398, 0.4398)),
    "gelu": ((0.9850, 0.7670), (0.9942, 0.9802)),
    "silu": ((0.9838, 0.8914), (0.9999, 0.9998)),
    "mish": ((0.9853, 0.8761), (0.9998, 0.9996)),
}
DENSITY_10 = {
    "relu": ((0.5000, 0.5000), (0.4398, 0.4398)),
    "gelu": ((0.8195, 0.7103), (0.9377, 0.9368)),
    "silu": ((0.8192, 0.8192), (0.9955, 0.9955)),
    "mish": ((0.8446, 0.8135), (0.9946, 0.9946)),
}
MEAN_GATE = {"relu": (0.5000, 0.4398), "gelu": (0.5393, 0.4654), "silu": (0.5116, 0.4763), "mish": (0.5797, 0.5653)}
# inactive mass of GELU at θ = .01, μ = 0, by σ
INACTIVE = {1.5: 0.0313, 1.2: 0.0180, 1.0: 0.0150, 0.75: 0.0149, 0.6: 0.0141, 0.5: 0.0119, 0.4: 0.0079, 0.33: 0.0042}

# label, label after centring, almost everywhere
CLASSES = {
    "identity": ("A", "", False),
    "relu": ("A", "", True),
    "leaky_relu:0.01": ("A", "", True),
    "tanh": ("B3", "", False),
    "erf": ("B3", "", False),
    "sin": ("B3", "", False),
    "arctan": ("B3", "", False),
    "poly:0:1:0:0:0:1": ("B5", "", False),
    "gelu": ("C", "", False),
    "gelu_tanh": ("C", "", False),
    "silu": ("C", "", False),
    "mish": ("C", "", False),
    "hardswish": ("C", "", False),
    "sigmoid": ("D", "B3", False),
    "softplus": ("D", "C", False),
    "logsigmoid": ("D", "C", False),
    "tanhshrink": ("outside", "", False),
    "poly:0:1:0:0:1": ("outside", "", False),
    "elu": ("outside", "", False),
    "celu": ("outside", "", False),
    "softsign": ("outside", "", False),
    "hardtanh": ("outside", "", False),
    "selu": ("outside", "", False),
}
# coefficient with which φ starts
LEADING = {
    "tanh": -2 / 3,
    "erf": -4 / (3 * math.sqrt(math.pi)),
    "sin": -1 / 3,
    "gelu": 1 / math.sqrt(2 * math.pi),
    "silu": 1 / 4,
    "sigmoid": -1 / 2,
    "softplus": -math.log(2),
}
TAYLOR = {"mish": (0.6, 0.32), "hardswish": (0.5, 1 / 6)}

_E = math.exp(-0.5)
# α, q, a_q, h, h^(q), ½E[σ²], λ', λ, γ_C as printed, qλ'
CONSTANTS = {
    "tanh": (1, 3, -1 / 3, 0.6057055096, 1.453521, 0.197147, -0.799905, -1.199858, 0, -2.3997),
    "erf": (1.128379, 3, -0.376126, 0.651470, 1.520097, 0.232280, -7 / 9, -7 / 6, 0, -2.3333),
    "sin": (1, 3, -1 / 6, 0.606531, 1.213061, 0.216166, -1 / 3, -1 / 2, 0, -1),
    "arctan": (1, 3, -1 / 3, 0.655680, 1.655680, 0.224850, -0.841712, -1.262568, 0, -2.5251),
    "gelu": (1 / 2, 2, 0.398942, 1 / 2, 0.705237, 0.212611, 1.125395, 1.500527, 3.8197, 2.2508),
    "silu": (1 / 2, 2, 1 / 4, 1 / 2, 0.557466, 0.177888, 0.557466, 0.743289, 1.5000, 1.1149),
    "sigmoid": (1 / 4, 3, -1 / 48, 0.206621, 0.557466, 0.021690, -0.224835, -0.337252, 0, -0.6745),
    "softplus": (1 / 2, 2, 1 / 8, 1 / 2, 0.319533, 0.142132, 0.159766, 0.213022, 0.3750, 0.3195),
}
CONSTANT_NAMES = (
    ("slope", 1e-6),
    ("q", 0.0),
    ("a_q", 1e-6),
    ("h", 1e-6),
    ("h_q", 1e-6),
    ("half power", 1e-6),
    ("lambda prime", 1e-6),
    ("lambda", 1e-6),
    ("gamma printed", 1e-4),
    ("nlo 1", 1e-4),
)
# K_t and K_s for L = 4, N = 64, β = 1
DRIVE = {
    "tanh": (4.845644, 0.07571319),
    "erf": (7.487720, 0.11699563),
    "sin": (4.852245, 0.07581633),
    "gelu": (0.5, 0.0078125),
    "silu": (0.5, 0.0078125),
}
EXACT = {
    ("erf", "h"): 2 / math.sqrt(3 * math.pi),
    ("sin", "h"): _E,
    ("sin", "h_q"): 2 * _E,
    ("gelu", "h_q"): 5 / (4 * math.sqrt(math.pi)),
    ("gelu", "lambda prime"): 5 / (math.sqrt(2) * math.pi),
    ("erf", "lambda prime"): -7 / 9,
    ("erf", "slope"): 2 / math.sqrt(math.pi),
    ("erf", "a_q"): -2 / (3 * math.sqrt(math.pi)),
    ("gelu", "a_q"): 1 / math.sqrt(2 * math.pi),
}
