"""Every table, figure and experiment of the paper on dead directions."""

from __future__ import annotations

from netvitals_lab.index import IndexEntry, StudyCost

RATES, INVENTORY = "dead-directions-rates", "dead-directions-inventory"
OPTIMISERS, LEARNING, RACE = "dead-directions-optimisers", "dead-directions-learning", "ddcadam"
PRACTICE, SWEEPS = "dead-directions-practice", "dead-directions-sweeps"
CROSSED, LATENT, SAMPLED = "dead-directions-crossed", "dead-directions-latent", "dead-directions-sampled"
ADAPTERS = "dead-directions-adapters"
VARIATIONS = "dead-directions-variations"
COMPRESSION = "dead-directions-compression"
PICTURES = "dead-directions-pictures"
PRETRAINED = "dead-directions-pretrained"
COSTS = {
    PRETRAINED: StudyCost(0.2),
    PICTURES: StudyCost(0.01),
    COMPRESSION: StudyCost(0.5),
    VARIATIONS: StudyCost(0.1),
    ADAPTERS: StudyCost(0.02),
    CROSSED: StudyCost(0.01),
    LATENT: StudyCost(0.02),
    SAMPLED: StudyCost(0.02),
    RATES: StudyCost(0.05),
    INVENTORY: StudyCost(0.05),
    OPTIMISERS: StudyCost(0.1),
    LEARNING: StudyCost(0.5),
    RACE: StudyCost(0.2),
    PRACTICE: StudyCost(0.02),
    SWEEPS: StudyCost(0.02),
}
DRAWING = "a drawing: nothing to run"

ENTRIES = (
    IndexEntry("Table 1", "G ladder of six layers, four activations, three seeds", "whole", RATES, ("C6",)),
    IndexEntry("Table 2", "A ladder and σ_min of activations", "whole", RATES, ("C7", "C9")),
    IndexEntry(
        "Table 3", "how primitives act on the ladder", "whole", RATES, ("C14", "C15", "C16", "C17", "C22", "C24", "C27")
    ),
    IndexEntry("Table 4", "three activations and two losses in rectangular nets", "whole", RATES, ("C29-losses",)),
    IndexEntry("Table 5", "two layers by activation", "whole", RATES, ("C44",)),
    IndexEntry("Table 6", "three tiers of reach", "not here", why="a table of words: nothing to run"),
    IndexEntry("Table 7", "autoencoder with a dead unit, four activations, five seeds", "whole", RATES, ("X8",)),
    IndexEntry("Table 8", "selection rule on three families", "whole", INVENTORY, ("X10", "X10-three", "C4")),
    IndexEntry(
        "Table 9",
        "what keeps the ladder",
        "whole",
        SWEEPS,
        ("T9-directions", "T9-losses", "T10-rotation"),
        only={"topic": ("several directions", "cross-entropy", "biases", "rotation")},
    ),
    IndexEntry(
        "Table 10",
        "what changes the ladder",
        "whole",
        SWEEPS,
        ("T10-widths", "T10-skips", "T10-stream", "T10-rotation", "T10-norms", "T10-heads"),
        only={"check": "probe"},
    ),
    IndexEntry(
        "Table 11",
        "cell A: the floor ε of Adam, and its transients",
        "whole",
        SWEEPS,
        ("T11", "T11-span"),
        only={"check": "floor"},
    ),
    IndexEntry(
        "Table 12",
        "cell B: reach into the singular set, by ε",
        "small only",
        SWEEPS,
        ("T12", "T12-smallest"),
        why="nine values of ε; the widths, the start, the rate and the shares of the table are lost in the text",
    ),
    IndexEntry(
        "Table 13",
        "22 variations, ten seeds",
        "whole",
        VARIATIONS,
        (
            *(f"X24-{n}" for n in ("linear", "sampled", "adam", "smooth", "k-fac", "leaves", "skips")),
            *("X24-mixers-sgd", "X24-addition-seeds"),
        ),
    ),
    IndexEntry("Figure 1", "the two sides of one geometry", "not here", why=DRAWING),
    IndexEntry("Figure 2", "slopes by KL order", "whole", INVENTORY, ("C1",)),
    IndexEntry("Figure 3", "a dead direction", "not here", why=DRAWING),
    IndexEntry("Figure 4", "tangent and normal space of a fibre", "not here", why=DRAWING),
    IndexEntry("Figure 5", "volume and curvature near a singularity", "whole", PICTURES, ("F5",)),
    IndexEntry("Figure 9", "primitives of a transformer and their rates", "not here", why=DRAWING),
    IndexEntry("Figure 12", "subleading corrections of the autoencoder", "whole", PICTURES, ("F12",)),
    IndexEntry("X4", "Lemma 18 by Monte Carlo", "whole", RATES, ("C11",)),
    IndexEntry("X5", "superposition", "whole", RATES, ("X5",)),
    IndexEntry("X9", "structural correlation", "whole", OPTIMISERS, ("X9",)),
    IndexEntry("X11", "three-parameter mixture", "whole", INVENTORY, ("X11",)),
    IndexEntry("X12", "learned reduced-rank regression", "whole", INVENTORY, ("N3",)),
    IndexEntry("X15", "expected and empirical Fisher under cross-entropy", "whole", RATES, ("X15",)),
    IndexEntry("X16", "attention chains", "whole", RATES, ("C26", "E1")),
    IndexEntry("X17", "block pairs", "whole", RATES, ("X17",)),
    IndexEntry("X18", "72 combinations of heads", "whole", RATES, ("X18",)),
    IndexEntry("X19", "SwiGLU", "whole", RATES, ("C27", "E2")),
    IndexEntry("X20", "pre-norm probe", "whole", RATES, ("X20",)),
    IndexEntry("X23", "cells C and D: homogeneity and momentum", "whole", OPTIMISERS, ("C42",)),
    IndexEntry("X25", "DDCAdam is equivariant", "whole", OPTIMISERS, ("C33", "C33-single")),
    IndexEntry("X26", "DDCAdam's trajectories", "whole", OPTIMISERS, ("C42-ddc",)),
    IndexEntry("X27", "gauge drift", "whole", OPTIMISERS, ("C34", "E10")),
    IndexEntry("X28", "ν", "whole", INVENTORY, ("C37", "C37-universal")),
    IndexEntry("X29", "crossings", "whole", INVENTORY, ("C35",)),
    IndexEntry("X30", "new classes", "whole", LEARNING, ("X30", "X30-largest")),
    IndexEntry(
        "X31",
        "pretrained transformers",
        "small only",
        PRETRAINED,
        ("X31-norms", "X31-pretrained", "X31-share", "X31-share-pretrained"),
        why="a pretrained encoder with LayerNorm from a folder; with RMSNorm only what is trained here",
    ),
    IndexEntry(
        "X31, the stream",
        "the stream's floor, V and O, and Schur ratios of networks trained here",
        "small only",
        RATES,
        ("X31-stream", "X31-schur", "X31-attention"),
        why="networks trained here, none that was pretrained",
    ),
    IndexEntry(
        "X32",
        "memorising and compressing",
        "whole",
        COMPRESSION,
        ("X32-phases", "X32-order", "X32-accumulation"),
    ),
    IndexEntry(
        "DDCAdam",
        "does it help in training",
        "whole",
        RACE,
        ("ddcadam-loss", "ddcadam-start", "ddcadam-drift"),
    ),
    IndexEntry(
        "Section 5.1",
        "a recorder of spectra by checkpoint with three time axes and per-rank fits",
        "whole",
        PRACTICE,
        ("S5.1", "S5.1-reach"),
        only={"check": "approach"},
    ),
    IndexEntry(
        "Section 9.2",
        "post-norm: the projection to the complement of 1",
        "whole",
        PRACTICE,
        ("S9.2",),
        only={"check": "stream"},
    ),
    IndexEntry(
        "Section 9.3",
        "component shift",
        "small only",
        PRACTICE,
        ("S9.3", "S9.3-counts"),
        why="the window and the estimator of the printed shift are lost in the text; three windows and both Fishers",
    ),
    IndexEntry(
        "Section 12",
        "observed minus predicted rates of a user's network",
        "whole",
        PRACTICE,
        ("S12", "S12-refusal", "S12-frame"),
        only={"check": ("deviation", "refusal", "approach")},
    ),
    IndexEntry(
        "Section 15",
        "pruning subspace, and a rate profile as a design objective",
        "whole",
        PRACTICE,
        (
            *("S15-fisher", "S15-variance", "S15-magnitude"),
            *("S15-half-fisher", "S15-half-variance", "S15-half-magnitude", "S15-design"),
        ),
        only={"check": ("pruning", "design")},
    ),
    IndexEntry("Gated blocks", "GeGLU, ReGLU, bilinear and sigmoid gates", "whole", RATES, ("C27-gates",)),
    IndexEntry(
        "Crossed blocks",
        "cross-attention, learned-projection skips",
        "whole",
        CROSSED,
        ("C15-projected", "C24-cross", "C24-one-sided", "C24-signal", "C26-shared", "C26-cross"),
    ),
    IndexEntry(
        "Zoo",
        "hidden Markov and Boltzmann models",
        "whole",
        LATENT,
        ("C2-latent", "C36-latent", "C40-latent", "C37-latent"),
    ),
    IndexEntry(
        "LLC",
        "rate against the learning coefficient on smooth fibres",
        "whole",
        SAMPLED,
        ("LLC-same", "LLC-crossing", "LLC-timing", "LLC-cost"),
    ),
    IndexEntry(
        "Adapters",
        "tangential LoRA against OGD and null-space baselines",
        "whole",
        ADAPTERS,
        ("LoRA-plain", "LoRA-OGD", "LoRA-null", "safe-contained"),
    ),
)
