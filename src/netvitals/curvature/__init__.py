"""The Hessian between layers: H = GN + T, exact and stochastic."""

from netvitals.curvature.interlayer import interlayer
from netvitals.curvature.operators import Operator, Operators, operators
from netvitals.curvature.result import InterlayerCurvature
from netvitals.curvature.spectrum import Eigenvalues, SpectralDensity, spectral_density, top_eigenvalues
from netvitals.curvature.trace import Trace, trace

__all__ = ["Eigenvalues", "InterlayerCurvature", "Operator", "Operators", "SpectralDensity", "Trace", "interlayer",
           "operators", "spectral_density", "top_eigenvalues", "trace"]
