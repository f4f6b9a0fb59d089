"""Every table, figure and experiment of the paper on gate density."""

from __future__ import annotations

from netvitals_lab.index import CORE, GPU, IndexEntry, StudyCost
from netvitals_lab.papers.gate_density.ablations import PHOTOGRAPHS

FOUNDATIONS, IMAGES, SWEEP = "gate-density-foundations", "gate-density-images", "gate-density-sweep"
NORMS, ARCHITECTURES = "gate-density-norms", "gate-density-architectures"
TRANSITION, REACHABLE, COMPOUNDING = "gate-density-transition", "gate-density-reachable", "gate-density-compounding"
CONVERGENCE, ARITHMETIC = "gate-density-convergence", "gate-density-arithmetic"
PRUNING, PRIVACY, TUNING = "gate-density-pruning", "gate-density-privacy", "gate-density-fine-tuning"
PLACES = PHOTOGRAPHS[1][1]

COSTS = {
    FOUNDATIONS: StudyCost(0.02, CORE),
    IMAGES: StudyCost(0.15, GPU),
    SWEEP: StudyCost(0.15, GPU),
    NORMS: StudyCost(0.15, GPU),
    ARCHITECTURES: StudyCost(0.3, GPU),
    TRANSITION: StudyCost(0.002, CORE),
    REACHABLE: StudyCost(0.1, CORE),
    COMPOUNDING: StudyCost(0.01, CORE),
    CONVERGENCE: StudyCost(0.01, CORE),
    ARITHMETIC: StudyCost(0.0001, CORE),
    PRUNING: StudyCost(0.2, GPU),
    PRIVACY: StudyCost(0.3, CORE),
    TUNING: StudyCost(0.2, GPU),
}

ENTRIES = (
    IndexEntry(
        "Table 1", "change of σ by channel under SGD and AdamW, four activations", "whole", IMAGES, ("T1", "C8")
    ),
    IndexEntry(
        "Table 2",
        "density at initialisation over 20 seeds, five architectures",
        "whole",
        FOUNDATIONS,
        ("E1", "E1-others", "C2", "E1-zero-head"),
        why="at small scale the networks are 8 channels wide, and ViT-B/16 is left out",
    ),
    IndexEntry("Table 3", "z_low at θ = .10 and the direction of nine activations", "whole", SWEEP, ("E6",)),
    IndexEntry("Table 4", "mean of the input, margin and predicted direction", "whole", IMAGES, ("T4", "C9", "C10")),
    IndexEntry("Table 5", "fine-tuning accuracy against final density", "whole", TUNING, ("E20", "E20-unseen")),
    IndexEntry("Table 6", "five optimisers at stiffness 10 and 20", "whole", TRANSITION, ("E21", "E21-levels")),
    IndexEntry("Table 7", "loss and IoU by stiffness", "whole", REACHABLE, ("E22-levels",)),
    IndexEntry("Table 8", "depth law by stiffness, with bootstrap R²", "whole", COMPOUNDING, ("C21", "E26-law")),
    IndexEntry("Table 9", "IoU by kernel and stiffness", "whole", REACHABLE, ("E28",)),
    IndexEntry(
        "Figure 1",
        "density falls in 18 convolutional runs while accuracy and rank rise",
        "whole",
        ARCHITECTURES,
        ("E2", "E17"),
        only={"network": ("resnet18", "resnet50", "vgg11"), "data": ("cifar10", "cifar100"), "act": "relu"},
    ),
    IndexEntry(
        "Figure 2",
        "the same backbone with four activations: density splits, rank rises",
        "whole",
        IMAGES,
        ("C4",),
    ),
    IndexEntry(
        "Figure 3",
        "by channel, correlation of normalised margin and density",
        "whole",
        IMAGES,
        ("C12",),
        only={"network": "resnet18", "data": "cifar10", "optimizer": "sgd"},
    ),
    IndexEntry("Figure 4", "σ and margin by activation and optimizer", "whole", IMAGES, ("T1", "C13")),
    IndexEntry("Figure 5", "thirteen trajectories by smoothness", "whole", SWEEP, ("C14",)),
    IndexEntry(
        "Figure 6",
        "Tiny-ImageNet, Mixer, encoder and Places365 beside CIFAR",
        "whole",
        ARCHITECTURES,
        ("C16",),
        why="at small scale on digits, without photographs",
    ),
    IndexEntry("Figure 7", "pruning by gates, magnitude and at random", "whole", PRUNING, ("C17", "E18-relu")),
    IndexEntry("Figure 8", "BatchNorm against GroupNorm", "whole", NORMS, ("C5",)),
    IndexEntry("Figure 9", "five thresholds", "whole", IMAGES, ("C6",)),
    IndexEntry(
        "Figure 10", "bands of the gate's size over training", "whole", IMAGES, ("F10",), only={"optimizer": "sgd"}
    ),
    IndexEntry(
        "Figure 11",
        "change of density under SGD, Adam and AdamW, 48 runs each",
        "whole",
        IMAGES,
        ("X-decay-images",),
        why="at small scale with the integrated decay matched, not with the paper's decay under AdamW",
    ),
    IndexEntry("Figure 12", "shared drift of means, and z_low beside it", "whole", IMAGES, ("T4", "C9", "C10")),
    IndexEntry("Figure 13", "smoothness index against trend", "whole", SWEEP, ("C14",)),
    IndexEntry("Figure 14", "attacks by stiffness", "whole", PRIVACY, ("C18",)),
    IndexEntry("Figure 15", "slices of the loss near the solution", "whole", TRANSITION, ("E29-landscape",)),
    IndexEntry("Figure 16", "null space, σ_min and stable rank by stiffness", "whole", TRANSITION, ("C23",)),
    IndexEntry("Figure 17", "bootstrap and information of α*", "whole", TRANSITION, ("E23-information",)),
    IndexEntry("Figure 18", "the fitted transition", "whole", REACHABLE, ("E23",)),
    IndexEntry("Figure 19", "loss and IoU by stiffness and optimiser", "whole", TRANSITION, ("E22", "E21")),
    IndexEntry("Figure 20", "cutoff threshold c, with its symmetry", "whole", TRANSITION, ("E29-cutoff",)),
    IndexEntry(
        "Figure 21", "active share by stiffness, Adam and projected gradient", "whole", TRANSITION, ("E21-levels",)
    ),
    IndexEntry(
        "Figure 22", "oracle rescaling", "whole", TRANSITION, ("C22", "E25-levels", "E25-reversal", "E25-closing")
    ),
    IndexEntry("Figure 23", "depth law: R², collapse rate, ratio", "whole", COMPOUNDING, ("C21", "E26-law")),
    IndexEntry("Figure 24", "six activations, three clusters", "whole", COMPOUNDING, ("E27",)),
    IndexEntry("Figure 25", "loss and IoU by kernel", "whole", REACHABLE, ("E28",)),
    IndexEntry("Figure 26", "IoU over kernel and stiffness", "whole", REACHABLE, ("E28",)),
    IndexEntry("Figure 27", "targets", "whole", TRANSITION, ("E29-targets",)),
    IndexEntry("Figure 28", "three resolutions", "whole", TRANSITION, ("E29-size",)),
    IndexEntry("Figure 29", "finite-size exponents and the two thresholds", "whole", TRANSITION, ("E29-scaling",)),
    IndexEntry(
        "Figure 30",
        "convergence curves with bands",
        "whole",
        CONVERGENCE,
        ("F30", "F30-spread", "F30-stiff"),
        why="without L-BFGS-B, whose line search takes other steps; at small scale pictures of 32 × 32 and 8 seeds",
        only={"check": "curves"},
    ),
    IndexEntry("Figure 31", "success rate by optimiser and stiffness", "whole", TRANSITION, ("E29-success",)),
    IndexEntry(
        "Figure 32",
        "difficulty model: ROC, coefficients and accuracy",
        "whole",
        CONVERGENCE,
        ("F32",),
        why="at small scale pictures of 32 × 32 and 8 seeds",
        only={"check": "kernels"},
    ),
    IndexEntry("Figure 33", "twenty restarts at stiffness 20", "whole", TRANSITION, ("E29-restarts",)),
    IndexEntry("Figure 34", "attack surface of the fixed kernel", "whole", TRANSITION, ("E29-success",)),
    IndexEntry("Figure 35, left", "IoU with the kernel fixed and learned", "whole", COMPOUNDING, ("E30",)),
    IndexEntry(
        "Figure 35",
        "effective stiffness of a learned kernel, and the correlation of deficit and gap",
        "whole",
        CONVERGENCE,
        ("F35-stiffness", "F35-independent"),
        why="at small scale pictures of 32 × 32 and 8 seeds",
        only={"check": "joint"},
    ),
    IndexEntry("Figure 36", "deep networks of stiff sigmoids", "whole", COMPOUNDING, ("E31", "E31-law")),
    IndexEntry("Figure 37", "independence of gates", "whole", COMPOUNDING, ("E26-independence",)),
    IndexEntry(
        "Experiment E13",
        "Tiny-ImageNet-200, ResNet-18 at 64×64",
        "configuration only",
        ARCHITECTURES,
        why="the images are not here, and a run takes hours of a GPU",
        only={"data": "tiny-imagenet"},
    ),
    IndexEntry(
        "Experiment E14",
        "Places365, ResNet-50 at 96×96",
        "configuration only",
        ARCHITECTURES,
        why="the images are not here, and a run takes hours of a GPU",
        only={"data": PLACES},
    ),
    IndexEntry(
        "Experiment E15",
        "Mixer and encoder on CIFAR-10 and CIFAR-100",
        "whole",
        ARCHITECTURES,
        ("C16",),
        only={"network": ("mixer", "encoder")},
    ),
    IndexEntry(
        "Experiment E16",
        "ConvNeXt-Tiny, 15 epochs, which the paper keeps out of its counts",
        "configuration only",
        ARCHITECTURES,
        why="28 million parameters on two cores",
        only={"network": "convnext-tiny"},
    ),
    IndexEntry(
        "Experiment E12",
        "the ablation under three optimizers, 48 runs each",
        "whole",
        IMAGES,
        ("C4", "E12-adam", "E12-adamw"),
    ),
    IndexEntry("Lemma A.1, Theorem A.2", "bounds on gradient and active share", "whole", COMPOUNDING, ("C19", "C20")),
    IndexEntry("Lemma A.4", "momentum, not rescaling, helps Adam; by stiffness", "whole", TRANSITION, ("C22",)),
    IndexEntry("Section 5.1", "how far |γ| shrinks", "whole", IMAGES, ("E8",)),
    IndexEntry(
        "Section 5.2, distances", "how far z_low is from the channels' means", "whole", IMAGES, ("E9-distance",)
    ),
    IndexEntry(
        "Section A.2",
        "sizes of the changes, mean gate, GELU's percentiles, accuracy with GroupNorm",
        "whole",
        IMAGES,
        ("A2-sizes", "A2-mean", "A2-tails", "A2-accuracy"),
    ),
    IndexEntry(
        "Sections 4 to A.9",
        "numbers that other numbers of the paper contradict",
        "whole",
        ARITHMETIC,
        ("N3", "N8", "N10", "N13", "N18", "N23"),
    ),
    IndexEntry(
        "Section 5.2",
        "when means turn negative, and that it does not follow smoothness",
        "whole",
        SWEEP,
        ("A3-turn", "A3-smoothness"),
    ),
    IndexEntry(
        "Section A.9.4",
        "573-fold variance between clusters, edges before interiors",
        "whole",
        CONVERGENCE,
        ("A94-variance", "A94-edges"),
        why="at small scale pictures of 32 × 32 and 8 seeds",
        only={"check": ("activations", "regions")},
    ),
)
