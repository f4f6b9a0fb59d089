"""Every experiment of the paper on weight drift; its tables and figures are not public, so rows are its experiments."""

from __future__ import annotations

from netvitals.lab.index import GPU, Cost, Entry

THEOREMS, SIGNS, CONTROLS = "weight-drift-theorems", "weight-drift-signs", "weight-drift-controls"
ARCHITECTURES, CLIFF, GPT, STEERING = (
    "weight-drift-architectures",
    "weight-drift-cliff",
    "weight-drift-gpt",
    "weight-drift-steering",
)
COSTS = {
    THEOREMS: Cost(0.05),
    SIGNS: Cost(0.1),
    CONTROLS: Cost(0.1),
    ARCHITECTURES: Cost(0.3),
    CLIFF: Cost(3.0, GPU),
    GPT: Cost(8.0, GPU),
    STEERING: Cost(0.1),
}

SIZES = (
    "of the perceptron, the residual network and the transformer only the kind is printed; usual sizes are configured"
)

ENTRIES = (
    Entry("E1", "the theorems by Monte Carlo", "whole", THEOREMS, ("C1", "C2", "C3", "C4", "C5", "C6")),
    Entry("E2", "sign of the gradient at initialisation", "whole", SIGNS, ("E2",)),
    Entry(
        "E3",
        "persistence over ten epochs",
        "small only",
        SIGNS,
        ("C23", "C8"),
        why="on digits; a residual network on images and a GPT on text are not configured",
    ),
    Entry(
        "E4, Figure 4",
        "the covariance term",
        "small only",
        SIGNS,
        ("C7",),
        why="on digits; the figure's set-up is not printed",
    ),
    Entry("E5", "optimizer and learning rate", "whole", CONTROLS, ("C12",)),
    Entry("E6", "random data", "whole", CONTROLS, ("C9", "C10")),
    Entry(
        "E7",
        "five architectures, three activations",
        "small only",
        ARCHITECTURES,
        ("C11",),
        why="at `paper` scale the networks are the small ones, trained longer; ResNet, ViT and MP-SENet of the paper's "
        "size are not configured",
    ),
    Entry("E8", "sparsity set by norms and top-k", "whole", CLIFF, ("C16",), why=SIZES),
    Entry("E9", "activations: sparsity and accuracy", "whole", CLIFF, ("C17",), why=SIZES),
    Entry("E10", "ReLUfication", "whole", STEERING, ("C18",)),
    Entry("E11", "79 configurations and the cliff", "whole", CLIFF, ("C17",), why=SIZES),
    Entry("E12", "sparsity growth in a GPT, up to 90 %", "whole", GPT, ("C15",)),
    Entry("E13", "spikes of ReLU²", "whole", GPT, ("C20",)),
    Entry("E14", "squares and clips", "whole", GPT, ("C19", "C21", "C22")),
    Entry(
        "E15",
        "MP-SENet",
        "small only",
        ARCHITECTURES,
        ("C11",),
        why="a magnitude denoiser on synthetic tones; the phase branch is missing, speech folders can be read",
        only={"network": "denoiser"},
    ),
)
