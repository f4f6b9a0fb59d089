"""Small networks as graphs of functions, with every local derivative in the open: the theory, executable.

``between_layers`` measures any module by automatic differentiation. Here the same blocks are built from local Jacobians
and contracted second-derivative tensors by the recursion over the graph, so that each term can be measured.
"""

from netvitals.curvature.dag import bounds
from netvitals.curvature.dag.evaluation import DagEvaluation as DagEvaluation
from netvitals.curvature.dag.graph import Graph, GraphNode, chain
from netvitals.curvature.dag.hessian_blocks import BlockTable as BlockTable
from netvitals.curvature.dag.hessian_blocks import assembled as assembled
from netvitals.curvature.dag.hessian_blocks import block, blocks
from netvitals.curvature.dag.hessian_blocks import root_factors as root_factors
from netvitals.curvature.dag.kinks import Certificate as Certificate
from netvitals.curvature.dag.kinks import certificate
from netvitals.curvature.dag.kinks import clarke_samples as clarke_samples
from netvitals.curvature.dag.kinks import near_kinks as near_kinks
from netvitals.curvature.dag.parameters import ParameterBlock as ParameterBlock
from netvitals.curvature.dag.parameters import parameter_block, parameter_hessian
from netvitals.curvature.dag.parameters import shared_block as shared_block
from netvitals.curvature.dag.paths import DagRoute as DagRoute
from netvitals.curvature.dag.paths import PathTerm as PathTerm
from netvitals.curvature.dag.paths import path_jacobian, path_terms, routing
from netvitals.curvature.dag.paths import path_resonance as path_resonance
from netvitals.curvature.dag.products import DagProducts as DagProducts
from netvitals.curvature.dag.products import product

__all__ = [
    "Graph",
    "GraphNode",
    "block",
    "blocks",
    "bounds",
    "certificate",
    "chain",
    "parameter_block",
    "parameter_hessian",
    "path_jacobian",
    "path_terms",
    "product",
    "routing",
]
