"""Every table, figure and experiment of the paper on saddle escape."""

from __future__ import annotations

from netvitals_lab.index import IndexEntry, StudyCost

REDUCTION, SCALING, UNIVERSALITY, HE = "saddle-reduction", "saddle-scaling", "saddle-universality", "saddle-he"
CASCADE, THEOREMS, OFF, PROOFS = "saddle-cascade", "saddle-theorems", "saddle-off-manifold", "saddle-proofs"
COSTS = {
    REDUCTION: StudyCost(6.0),
    SCALING: StudyCost(0.05),
    UNIVERSALITY: StudyCost(0.5),
    HE: StudyCost(20.0),
    CASCADE: StudyCost(2.0),
    THEOREMS: StudyCost(0.01),
    OFF: StudyCost(0.5),
    PROOFS: StudyCost(0.05),
}

ENTRIES = (
    IndexEntry(
        "Figure 1",
        "(a) loss and (b) layer scales: the scalar chain beside the full network",
        "whole",
        REDUCTION,
        ("C10",),
    ),
    IndexEntry(
        "Figure 2",
        "escape time against ε by depth (a) and by small layers (b)",
        "whole",
        SCALING,
        ("C16", "E2b", "C15"),
    ),
    IndexEntry(
        "Figure 3",
        "(a) escape times of five activations, (b) after rescaling",
        "whole",
        UNIVERSALITY,
        ("C20", "E3c", "E3d"),
        why="at small scale descent runs for tanh and sin at one ε",
    ),
    IndexEntry(
        "Figure 4",
        "exponents off the manifold at He initialisation, r = 3, 5, 8",
        "whole",
        HE,
        ("C30", "C31", "E4f"),
        why="at small scale width 64",
    ),
    IndexEntry("Table of Figure 4", "fitted exponents −1.22, −2.74, −5.42", "whole", HE, ("E4t",)),
    IndexEntry(
        "Figure 5",
        "three modes: loss, alignment, and the attribution of the escape time",
        "whole",
        CASCADE,
        ("C39", "E5n"),
    ),
    IndexEntry("Proposition 23", "the homotopy identity", "whole", CASCADE, ("C38",)),
    IndexEntry("Proposition 24", "Schur–Perron, and whether its hypotheses hold", "whole", THEOREMS, ("C36", "C36b")),
    IndexEntry("Theorem 25", "truncations of a hierarchy that is given have rising rates", "whole", THEOREMS, ("C37",)),
    IndexEntry(
        "Theorem 25, Corollary 26 in a network",
        "row moments, the row-variance channel, and what a closure leaves out",
        "whole",
        PROOFS,
        ("R25d", "R25r", "R25v"),
        only={"question": ("rates", "residuals", "rows")},
    ),
    IndexEntry(
        "Theorems 1 to 6",
        "identity, classes, reduction, escape time, critical depth",
        "whole",
        THEOREMS,
        ("C1", "C6", "C19"),
    ),
    IndexEntry("Proposition 8, Lemma 10", "the signal-energy identity at states", "whole", THEOREMS, ("C25", "C26")),
    IndexEntry(
        "Definition 9, Theorem 11",
        "bounds on γ and M along a trajectory, with detectors of both",
        "whole",
        OFF,
        ("T19l", "T19u", "T19c"),
        only={"question": "way"},
    ),
    IndexEntry("Theorem 16, on the ray", "the invariant of the balanced ray", "whole", THEOREMS, ("T7",)),
    IndexEntry(
        "Theorem 16",
        "invariants and the product form off the ray",
        "whole",
        PROOFS,
        ("T16o", "T16u"),
        only={"question": "cone"},
    ),
    IndexEntry("Lemma 19, edges", "the shell at its edges", "whole", THEOREMS, ("T12",)),
    IndexEntry(
        "Lemma 19",
        "the shell's interior and its integral",
        "whole",
        PROOFS,
        ("T12i", "T12s"),
        only={"question": ("shell", "shell law")},
    ),
    IndexEntry("Section E.6, one chain", "the stage law, and a weaker mode first", "whole", THEOREMS, ("C33", "C34")),
    IndexEntry(
        "Section E.6",
        "F_k, H_k and ρ_op of a network, the stage ODE, and times of the second and third mode",
        "whole",
        PROOFS,
        ("E6f", "E6o", "E6t"),
        only={"question": ("forces", "stages")},
    ),
    IndexEntry(
        "Section 5, remark",
        "the prefactor, on the manifold and off it",
        "whole",
        OFF,
        ("T21m", "T21h"),
        only={"question": ("manifold", "way")},
    ),
    IndexEntry(
        "Appendix D",
        "two-sided bounds on all forward and backward chains, at the start and along the way",
        "whole",
        OFF,
        ("D1", "D2"),
        only={"question": ("start", "way")},
    ),
)
