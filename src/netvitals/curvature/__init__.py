"""The Hessian between layers: H = GN + T, exact and stochastic. If unsure, use ``report``.

* Measure a model: ``between_layers`` (every pair of its layers), ``graph`` (which edge carries the curvature),
  ``trace``, ``diagonal``, ``top_eigenvalues`` and ``spectral_density`` (its parameters), ``activation_bend`` (where T
  comes from); ``cost`` says beforehand what ``between_layers`` will cost.
* Say what it means: ``recommend``, ``bottlenecks``, ``dropped_blocks``, ``decay``,
  ``bandwidth``; pictures are drawn by ``netvitals.report.curvature_pictures``.
* Build on it: ``operators`` (products with blocks or the whole matrix: Hessian, Gauss–Newton, Fisher), their
  ``damped_inverse``, ``kronecker`` factors with their error, ``influence`` of training examples, ``node_jacobians``;
  ``advice.lowrank`` and ``advice.steps`` for what is done with them.
* Follow it in training: ``watch(model, vitals=["default", "curvature"], probe=(x, y, loss_fn))``.
* The theory as small graphs of functions: ``dag``; its inequalities: ``dag.bounds``.
"""

from netvitals.curvature import dag
from netvitals.curvature.advice.answer import CurvatureReport as CurvatureReport
from netvitals.curvature.advice.answer import edge_of as edge_of
from netvitals.curvature.advice.answer import report
from netvitals.curvature.advice.design import bottlenecks, dropped_blocks, recommend
from netvitals.curvature.advice.distance import bandwidth, decay
from netvitals.curvature.advice.heatmap import Weight as Weight
from netvitals.curvature.advice.heatmap import drawing as drawing
from netvitals.curvature.advice.heatmap import heatmap_svg as heatmap_svg
from netvitals.curvature.advice.heatmap import matrix_of as matrix_of
from netvitals.curvature.advice.heatmap import text_at as text_at
from netvitals.curvature.engine.graph import OUT as OUT
from netvitals.curvature.engine.graph import NodeGraph as NodeGraph
from netvitals.curvature.engine.operator import operators
from netvitals.curvature.matrices.diagonals import Diagonal as Diagonal
from netvitals.curvature.matrices.diagonals import diagonal
from netvitals.curvature.matrices.influence import Influence as Influence
from netvitals.curvature.matrices.influence import influence
from netvitals.curvature.matrices.kronecker import Kronecker as Kronecker
from netvitals.curvature.matrices.kronecker import kronecker
from netvitals.curvature.matrices.solving import damped_inverse
from netvitals.curvature.measure.between_layers import between_layers
from netvitals.curvature.measure.cost import CostEstimate as CostEstimate
from netvitals.curvature.measure.cost import cost
from netvitals.curvature.measure.density import SpectralDensity as SpectralDensity
from netvitals.curvature.measure.density import spectral_density
from netvitals.curvature.measure.following import ParameterLook as ParameterLook
from netvitals.curvature.measure.following import look_at as look_at
from netvitals.curvature.measure.jacobians import Bend as Bend
from netvitals.curvature.measure.jacobians import activation_bend, node_jacobians
from netvitals.curvature.measure.result import InterlayerCurvature as InterlayerCurvature
from netvitals.curvature.measure.routes import Block as Block
from netvitals.curvature.measure.routes import CurvatureGraph as CurvatureGraph
from netvitals.curvature.measure.routes import PathPair as PathPair
from netvitals.curvature.measure.routes import Route as Route
from netvitals.curvature.measure.routes import graph
from netvitals.curvature.measure.spectrum import Eigenvalues as Eigenvalues
from netvitals.curvature.measure.spectrum import top_eigenvalues
from netvitals.curvature.measure.traces import Trace as Trace
from netvitals.curvature.measure.traces import trace

__all__ = [
    # ask everything at once
    "report",
    # measure a model
    "between_layers",
    "graph",
    "cost",
    "trace",
    "diagonal",
    "top_eigenvalues",
    "spectral_density",
    "activation_bend",
    # say what it means
    "recommend",
    "bottlenecks",
    "dropped_blocks",
    "decay",
    "bandwidth",
    # build on it
    "operators",
    "damped_inverse",
    "kronecker",
    "influence",
    "node_jacobians",
    # the theory
    "dag",
]
