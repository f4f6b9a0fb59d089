"""The synthetic phase transition: reconstruct a picture through a fixed kernel and a stiff sigmoid."""

from netvitals.lab.reconstruction.analysis import (
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
from netvitals.lab.reconstruction.descent import METHODS, Solution, solve
from netvitals.lab.reconstruction.phase import (
    PhaseFit,
    Scaling,
    bands,
    bootstrap_midpoint,
    curve,
    finite_size_exponent,
    fit_phase,
)
from netvitals.lab.reconstruction.problem import GATE_FLOOR, KERNELS, Reconstruction, grid, kernel, overlap, target

__all__ = ["GATE_FLOOR", "KERNELS", "METHODS", "BoundCheck", "JacobianReport", "PhaseFit", "Reconstruction", "Scaling",
           "Solution", "active_bound", "active_width", "bands", "bootstrap_midpoint", "curve", "dense_operator",
           "depth_bound", "finite_size_exponent", "fit_phase", "gate_correlation", "gradient_bound", "grid", "jacobian",
           "kernel", "overlap", "solve", "target"]
