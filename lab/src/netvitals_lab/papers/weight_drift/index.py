"""Every experiment of the paper on weight drift; its tables and figures are not public, so rows are its experiments."""

from __future__ import annotations

from netvitals_lab.index import GPU, IndexEntry, StudyCost

THEOREMS, SIGNS, CONTROLS = "weight-drift-theorems", "weight-drift-signs", "weight-drift-controls"
ARCHITECTURES, CLIFF, GPT, STEERING = (
    "weight-drift-architectures",
    "weight-drift-cliff",
    "weight-drift-gpt",
    "weight-drift-steering",
)
ENDURANCE, REAL = "weight-drift-endurance", "weight-drift-real-sizes"
COSTS = {
    THEOREMS: StudyCost(0.05),
    SIGNS: StudyCost(0.1),
    CONTROLS: StudyCost(0.1),
    ARCHITECTURES: StudyCost(0.3),
    CLIFF: StudyCost(3.0, GPU),
    GPT: StudyCost(8.0, GPU),
    STEERING: StudyCost(0.1),
    ENDURANCE: StudyCost(8.0, GPU),
    REAL: StudyCost(3.0, GPU),
}

SIZES = (
    "of the perceptron, the residual network and the transformer only the kind is printed; usual sizes are configured"
)

ENTRIES = (
    IndexEntry("E1", "the theorems by Monte Carlo", "whole", THEOREMS, ("C1", "C2", "C3", "C4", "C5", "C6")),
    IndexEntry("E2", "sign of the gradient at initialisation", "whole", SIGNS, ("E2",)),
    IndexEntry(
        "E3",
        "persistence over ten epochs in a residual network on images and a GPT on text",
        "whole",
        ENDURANCE,
        ("C23-resnet", "C23-gpt"),
        why="at small scale two epochs of a narrow residual network and 60 steps of a small GPT",
    ),
    IndexEntry("E3, perceptron", "persistence over ten epochs on digits", "whole", SIGNS, ("C23", "C8")),
    IndexEntry(
        "E4, Figure 4",
        "the covariance term",
        "small only",
        SIGNS,
        ("C7",),
        why="on digits; the figure's set-up is not printed",
    ),
    IndexEntry("E5", "optimizer and learning rate", "whole", CONTROLS, ("C12",)),
    IndexEntry("E6", "random data", "whole", CONTROLS, ("C9", "C10")),
    IndexEntry(
        "E7",
        "five architectures, three activations",
        "whole",
        REAL,
        ("C11-real",),
        why=SIZES + "; at small scale narrow ones with ReLU and sixty steps",
    ),
    IndexEntry(
        "E7, small networks",
        "five architectures on digits, text and tones",
        "small only",
        ARCHITECTURES,
        ("C11",),
        why="ours: small networks, trained longer at `paper` scale; the paper's sizes are in the row above",
    ),
    IndexEntry("E8", "sparsity set by norms and top-k", "whole", CLIFF, ("C16",), why=SIZES),
    IndexEntry("E9", "activations: sparsity and accuracy", "whole", CLIFF, ("C17",), why=SIZES),
    IndexEntry("E10", "ReLUfication", "whole", STEERING, ("C18",)),
    IndexEntry("E11", "79 configurations and the cliff", "whole", CLIFF, ("C17",), why=SIZES),
    IndexEntry("E12", "sparsity growth in a GPT, up to 90 %", "whole", GPT, ("C15",)),
    IndexEntry("E13", "spikes of ReLU²", "whole", GPT, ("C20",)),
    IndexEntry("E14", "squares and clips", "whole", GPT, ("C19", "C21", "C22")),
    IndexEntry(
        "E15",
        "MP-SENet: magnitude and phase",
        "small only",
        REAL,
        ("C11-speech",),
        why="at MP-SENet's number of parameters with both branches, but encoder blocks stand in the place of its "
        "Conformers and the metric discriminator is left out; at small scale narrow, on synthetic tones",
        only={"network": "speech"},
    ),
)
