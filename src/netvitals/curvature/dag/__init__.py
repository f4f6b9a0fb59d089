"""Small networks as graphs of functions, with every local derivative in the open: the theory, executable.

``interlayer`` measures any module by automatic differentiation. Here the same blocks are built from local Jacobians and
contracted second-derivative tensors by the recursion over the graph, so that each term can be looked at.
"""

from netvitals.curvature.dag import bounds
from netvitals.curvature.dag.evaluation import DagEvaluation
from netvitals.curvature.dag.graph import Graph, GraphNode, chain
from netvitals.curvature.dag.hessian_blocks import BlockTable, assembled, block, blocks, root_factors
from netvitals.curvature.dag.kinks import Certificate, certificate, clarke_samples, near_kinks
from netvitals.curvature.dag.parameters import ParameterBlock, parameter_block, parameter_hessian, shared_block
from netvitals.curvature.dag.paths import DagRoute, PathTerm, path_jacobian, path_resonance, path_terms, routing
from netvitals.curvature.dag.products import DagProducts, product

__all__ = [
    "BlockTable",
    "Certificate",
    "DagEvaluation",
    "DagProducts",
    "DagRoute",
    "Graph",
    "GraphNode",
    "ParameterBlock",
    "PathTerm",
    "assembled",
    "block",
    "blocks",
    "bounds",
    "certificate",
    "chain",
    "clarke_samples",
    "near_kinks",
    "parameter_block",
    "parameter_hessian",
    "path_jacobian",
    "path_resonance",
    "path_terms",
    "product",
    "root_factors",
    "routing",
    "shared_block",
]
