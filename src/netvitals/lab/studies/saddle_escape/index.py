"""Every table, figure and experiment of the paper on saddle escape."""

from __future__ import annotations

from netvitals.lab.index import Cost, Entry

REDUCTION, SCALING, UNIVERSALITY, HE = "saddle-reduction", "saddle-scaling", "saddle-universality", "saddle-he"
CASCADE, THEOREMS, OFF, PROOFS = "saddle-cascade", "saddle-theorems", "saddle-off-manifold", "saddle-proofs"
COSTS = {
    REDUCTION: Cost(6.0),
    SCALING: Cost(0.05),
    UNIVERSALITY: Cost(0.5),
    HE: Cost(20.0),
    CASCADE: Cost(2.0),
    THEOREMS: Cost(0.01),
    OFF: Cost(0.5),
}

ENTRIES = (
    Entry(
        "Figure 1",
        "(a) loss and (b) layer scales: the scalar chain beside the full network",
        "whole",
        REDUCTION,
        ("C10",),
    ),
    Entry(
        "Figure 2",
        "escape time against ε by depth (a) and by small layers (b)",
        "whole",
        SCALING,
        ("C16", "E2b", "C15"),
    ),
    Entry(
        "Figure 3",
        "(a) escape times of five activations, (b) after rescaling",
        "whole",
        UNIVERSALITY,
        ("C20", "E3c", "E3d"),
        why="at small scale descent runs for tanh and sin at one ε",
    ),
    Entry(
        "Figure 4",
        "exponents off the manifold at He initialisation, r = 3, 5, 8",
        "whole",
        HE,
        ("C30", "C31", "E4f"),
        why="at small scale width 64 and two seeds",
    ),
    Entry("Table of Figure 4", "fitted exponents −1.22, −2.74, −5.42", "whole", HE, ("E4t",)),
    Entry(
        "Figure 5",
        "three modes: loss, alignment, and the attribution of the escape time",
        "whole",
        CASCADE,
        ("C39", "E5n"),
    ),
    Entry("Proposition 23", "the homotopy identity", "whole", CASCADE, ("C38",)),
    Entry("Proposition 24", "Schur–Perron, and whether its hypotheses hold", "whole", THEOREMS, ("C36", "C36b")),
    Entry(
        "Theorem 25, Corollary 26",
        "no finite closure has the true rate",
        "small only",
        THEOREMS,
        ("C37",),
        why="on a synthetic hierarchy; row moments of a network are not measured",
    ),
    Entry(
        "Theorems 1 to 6",
        "identity, classes, reduction, escape time, critical depth",
        "whole",
        THEOREMS,
        ("C1", "C6", "C19"),
    ),
    Entry("Proposition 8, Lemma 10", "the signal-energy identity at states", "whole", THEOREMS, ("C25", "C26")),
    Entry(
        "Definition 9, Theorem 11",
        "bounds on γ and M along a trajectory, with detectors of both",
        "whole",
        OFF,
        ("T19l", "T19u", "T19c"),
        only={"question": "way"},
    ),
    Entry("Theorem 16", "the balanced ray", "small only", THEOREMS, ("T7",), why="on the ray only"),
    Entry(
        "Lemma 19", "the shell", "small only", THEOREMS, ("T12",), why="the interior and the integral are not judged"
    ),
    Entry(
        "Section E.6",
        "the stage ODE of mode k in a network",
        "small only",
        THEOREMS,
        ("C33", "C34"),
        why="times of the second and third mode are not measured in a network",
    ),
    Entry(
        "Section 5, remark",
        "the prefactor, on the manifold and off it",
        "whole",
        OFF,
        ("T21m", "T21h"),
        only={"question": ("manifold", "way")},
    ),
    Entry(
        "Appendix D",
        "two-sided bounds on all forward and backward chains, at the start and along the way",
        "whole",
        OFF,
        ("D1", "D2"),
        only={"question": ("start", "way")},
    ),
)
