"""The Hessian between layers: H = GN + T, exact and stochastic.

``interlayer`` measures any module; ``trace``, ``top_eigenvalues`` and ``spectral_density`` its parameters; ``describe``
says what it means. ``dag`` holds the theory as small graphs of functions, ``bounds`` its inequalities.
"""

from netvitals._moved import moved
from netvitals.anatomy.topology import Topology
from netvitals.curvature import dag
from netvitals.curvature.advice import lowrank, picture, steps
from netvitals.curvature.advice.design import (
    Bottleneck,
    Dropped,
    Recommendation,
    best_skips,
    bottlenecks,
    dropped_blocks,
    recommend,
    uniform_skips,
)
from netvitals.curvature.advice.distance import (
    Decay,
    averages,
    band_threshold,
    bandwidth,
    decay,
    decay_rate,
    far_pairs,
    fixed_end,
    interaction_radius,
    mass_outside,
)
from netvitals.curvature.advice.words import describe
from netvitals.curvature.dag import bounds
from netvitals.curvature.engine.graph import NodeGraph
from netvitals.curvature.engine.operator import Operator, Operators, operators
from netvitals.curvature.measure import estimators, metrics
from netvitals.curvature.measure.between_layers import interlayer
from netvitals.curvature.measure.cost import CostPlan, plan
from netvitals.curvature.measure.jacobians import (
    Bend,
    EdgeNorms,
    Lyapunov,
    NodeJacobians,
    activation_bend,
    lyapunov,
    node_jacobians,
)
from netvitals.curvature.measure.result import InterlayerCurvature
from netvitals.curvature.measure.spectrum import Eigenvalues, SpectralDensity, spectral_density, top_eigenvalues
from netvitals.curvature.measure.traces import Trace, trace

__all__ = [
    "Bend",
    "Bottleneck",
    "Decay",
    "Dropped",
    "EdgeNorms",
    "Eigenvalues",
    "InterlayerCurvature",
    "Lyapunov",
    "NodeGraph",
    "NodeJacobians",
    "Operator",
    "Operators",
    "CostPlan",
    "Recommendation",
    "SpectralDensity",
    "Topology",
    "Trace",
    "activation_bend",
    "averages",
    "band_threshold",
    "bandwidth",
    "best_skips",
    "bottlenecks",
    "bounds",
    "dag",
    "decay",
    "decay_rate",
    "describe",
    "dropped_blocks",
    "estimators",
    "far_pairs",
    "fixed_end",
    "interaction_radius",
    "interlayer",
    "lowrank",
    "lyapunov",
    "mass_outside",
    "metrics",
    "node_jacobians",
    "operators",
    "picture",
    "plan",
    "recommend",
    "spectral_density",
    "steps",
    "top_eigenvalues",
    "trace",
    "uniform_skips",
]

__getattr__ = moved(
    __name__, {"Jump": "netvitals.vitals.curvature.Jump", "Monitor": "netvitals.vitals.curvature.monitor"}
)
