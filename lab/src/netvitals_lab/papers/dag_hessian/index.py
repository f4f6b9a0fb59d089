"""Every table, figure and experiment of the paper on the Hessian over an architecture's graph."""

from __future__ import annotations

from netvitals_lab.index import GPU, IndexEntry, StudyCost

DISTANCE, BOTTLENECK, GAP = "dag-hessian-distance", "dag-hessian-bottleneck", "dag-hessian-gap"
DIAMOND, ATTENTION, RESNET = "dag-hessian-diamond", "dag-hessian-attention", "dag-hessian-resnet"
IDENTITIES, REMARKS = "dag-hessian-identities", "dag-hessian-remarks"
COSTS = {
    DISTANCE: StudyCost(0.2, GPU),
    BOTTLENECK: StudyCost(0.3, GPU),
    GAP: StudyCost(0.1, GPU),
    DIAMOND: StudyCost(0.1, GPU),
    ATTENTION: StudyCost(0.02),
    RESNET: StudyCost(2.0, GPU),
    IDENTITIES: StudyCost(0.02),
    REMARKS: StudyCost(0.01),
}
TRAINED = "the trained half is configured; at small scale only the start, on noise"

ENTRIES = (
    IndexEntry("Table 1", "notation", "not here", why="a table of symbols: nothing to run"),
    IndexEntry("Figure 1", "a graph with a skip, and its block pattern", "not here", why="a drawing: nothing to run"),
    IndexEntry("Table 2", "ρ and Lyapunov exponents by depth and phase", "whole", DISTANCE, ("H1.4", "H1.6", "H1.9")),
    IndexEntry(
        "Figure 2", "coupling against distance, plain and residual", "whole", DISTANCE, ("H1.2", "H1.3", "H1.10")
    ),
    IndexEntry(
        "Figure 3", "resonance against distance, plain and residual", "whole", DISTANCE, ("H1.1", "H1.5", "H1.7")
    ),
    IndexEntry(
        "Table 3",
        "stable rank and coupling across necks, six layers",
        "whole",
        BOTTLENECK,
        ("H2.1", "H2.2", "H2.3", "H2.4", "H2.5"),
        why=TRAINED,
        only={"depth": 6},
    ),
    IndexEntry("Figure 4", "stable rank against the neck's width", "whole", BOTTLENECK, ("H2.1",), why=TRAINED),
    IndexEntry("Table 4", "gap with layer norm by activation", "whole", GAP, ("H3.4", "H3.9", "H3.10", "H3.11")),
    IndexEntry("Table 5", "gap without norm by activation", "whole", GAP, ("H3.1", "H3.2", "H3.8", "H3.12")),
    IndexEntry("Figure 5", "gap against E[σ''²]", "whole", GAP, ("H3.3",)),
    IndexEntry(
        "Table 6", "gap at the merge, branches of two", "whole", DIAMOND, ("H4.3", "H4.4", "H4.5"), only={"length": 2}
    ),
    IndexEntry("Figure 6", "gap at the merge on a logarithmic axis", "whole", DIAMOND, ("H4.3",)),
    IndexEntry(
        "Table 7", "gap of attention and of a relu net", "whole", ATTENTION, ("H5.1", "H5.2", "H5.3", "H5.4", "H5.5")
    ),
    IndexEntry(
        "Table 8",
        "gap of ResNet-18 by distance after training",
        "configuration only",
        RESNET,
        ("H6.3", "H6.9"),
        why="a hundred epochs of ResNet-18 are too long for two cores",
    ),
    IndexEntry(
        "Table 9", "resonance and coupling of ResNet-18 at the start", "whole", RESNET, ("H6.1", "H6.2", "H6.6")
    ),
    IndexEntry("Figure 7", "resonance of ResNet-18 by distance", "whole", RESNET, ("H6.1",)),
    IndexEntry(
        "Table N.1",
        "stable rank and coupling across necks, eight layers",
        "whole",
        BOTTLENECK,
        ("H2.6", "H2.7"),
        why=TRAINED,
        only={"depth": 8},
    ),
    IndexEntry(
        "Table N.2",
        "spectral normalisation",
        "whole",
        DISTANCE,
        ("H1b", "H1.11", "Rs8", "Rs12"),
        only={"net": "spectral"},
    ),
    IndexEntry(
        "Figure N.1", "resonance under spectral normalisation", "whole", DISTANCE, ("H1b",), only={"net": "spectral"}
    ),
    IndexEntry(
        "Table N.3",
        "depths 16 and 32",
        "whole",
        DISTANCE,
        ("H1.12",),
        why="at small scale trained on digits",
        only={"depth": (16, 32), "net": ("plain", "residual")},
    ),
    IndexEntry("Table N.4", "gap at the merge, branches of one to three", "whole", DIAMOND, ("H4.4", "H4.5")),
    IndexEntry("Figure N.2", "resonance across the branches", "whole", DIAMOND, ("H4.2a", "H4.2b"), only={"length": 2}),
    IndexEntry("Table N.5", "sums of both parts by distance", "whole", GAP, ("H3.5", "H3.6")),
    IndexEntry("Table N.6", "exact and stochastic gap", "whole", GAP, ("H3.7",)),
    IndexEntry(
        "Table N.7",
        "ResNet-18 halfway",
        "configuration only",
        RESNET,
        ("H6.7",),
        why="a hundred epochs of ResNet-18 are too long for two cores",
    ),
    IndexEntry(
        "Table N.8", "gaps of ResNet-18 at three moments", "whole", RESNET, ("H6.4", "H6.5", "H6.8"), why=TRAINED
    ),
    IndexEntry(
        "Theorems", "closed forms, bounds, path sums on random graphs", "whole", IDENTITIES, ("T7", "T2", "T25", "T33")
    ),
    IndexEntry("Remark 74", "DenseNet and U-Net", "whole", REMARKS, ("R74d", "R74u"), only={"question": "shape"}),
    IndexEntry(
        "Corollary 73, Prop. 75",
        "placement of skips by measured resonance",
        "whole",
        REMARKS,
        ("C73", "P75"),
        only={"question": ("placement", "cancelling")},
    ),
    IndexEntry(
        "Prop. 89, 90",
        "cost of a product over a gradient, and its growth with P",
        "whole",
        REMARKS,
        ("P89",),
        only={"question": "cost"},
    ),
    IndexEntry(
        "Remark 103",
        "d_eff against the length of a sequence",
        "whole",
        REMARKS,
        ("R103a", "R103b"),
        only={"question": "length"},
    ),
    IndexEntry(
        "Remarks 22, 96, Cor. 29",
        "trust region, L-BFGS and Kronecker blocks beside H",
        "whole",
        REMARKS,
        ("C29", "R96"),
        only={"question": "approximations"},
    ),
    IndexEntry(
        "Clarke hull", "membership of the Hessian at kinks", "whole", REMARKS, ("K1", "K2"), only={"question": "kinks"}
    ),
)
