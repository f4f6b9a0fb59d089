"""The Hessian between layers: H = GN + T, exact and stochastic."""

from netvitals.curvature.interlayer import interlayer
from netvitals.curvature.result import InterlayerCurvature
from netvitals.curvature.trace import Trace, trace

__all__ = ["InterlayerCurvature", "Trace", "interlayer", "trace"]
