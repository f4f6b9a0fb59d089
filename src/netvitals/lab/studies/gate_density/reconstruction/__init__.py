"""The synthetic phase transition: reconstruct a picture through a fixed kernel and a stiff sigmoid."""

from netvitals.lab.studies.gate_density.reconstruction.analysis import (
    BoundCheck,
    JacobianReport,
    active_bound,
    active_width,
    dense_operator,
    depth_bound,
    gate_correlation,
    gradient_bound,
    jacobian,
)
from netvitals.lab.studies.gate_density.reconstruction.descent import METHODS, Solution, solve
from netvitals.lab.studies.gate_density.reconstruction.laws import (
    Clusters,
    DepthLaw,
    Profile,
    clusters,
    depth_law,
    difficulty_features,
    layer_profile,
)
from netvitals.lab.studies.gate_density.reconstruction.phase import (
    PhaseFit,
    Scaling,
    bands,
    bootstrap_midpoint,
    curve,
    finite_size_exponent,
    fit_phase,
)
from netvitals.lab.studies.gate_density.reconstruction.problem import (
    GATE_FLOOR,
    KERNELS,
    Reconstruction,
    grid,
    kernel,
    overlap,
    target,
)
from netvitals.lab.studies.gate_density.reconstruction.variants import (
    ACTIVATIONS,
    Spread,
    Variant,
    landscape,
    noisy,
    solve_activation,
    solve_joint,
    spread,
)

__all__ = ["ACTIVATIONS", "GATE_FLOOR", "KERNELS", "METHODS", "BoundCheck", "Clusters", "DepthLaw", "JacobianReport",
           "PhaseFit", "Profile", "Reconstruction", "Scaling", "Solution", "Spread", "Variant", "active_bound",
           "active_width", "bands", "bootstrap_midpoint", "clusters", "curve", "dense_operator", "depth_bound",
           "depth_law", "difficulty_features", "finite_size_exponent", "fit_phase", "gate_correlation",
           "gradient_bound", "grid", "jacobian", "kernel", "landscape", "layer_profile", "noisy", "overlap", "solve",
           "solve_activation", "solve_joint", "spread", "target"]
