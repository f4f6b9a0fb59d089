"""The one training loop the studies use, and seed-batched ensembles."""

from netvitals_lab.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from netvitals_lab.training.ensemble import Ensemble
from netvitals_lab.training.ensemble_history import EnsembleEvaluation, EnsembleHistory, EnsembleMoment
from netvitals_lab.training.history import Evaluation, History, Moment
from netvitals_lab.training.loop import evaluate, gradient_step, train
from netvitals_lab.training.losses import LOSSES, loss_named
from netvitals_lab.training.optimizer import kinds, make_optimizer
from netvitals_lab.training.recipe import (
    RECIPES,
    Group,
    Recipe,
    integrated_decay,
    match_decay,
    multiplier,
    recipe_named,
    steps_of,
)

__all__ = [
    "LOSSES",
    "RECIPES",
    "Checkpoint",
    "Ensemble",
    "EnsembleEvaluation",
    "EnsembleHistory",
    "EnsembleMoment",
    "Evaluation",
    "Group",
    "History",
    "Moment",
    "Recipe",
    "evaluate",
    "gradient_step",
    "integrated_decay",
    "kinds",
    "load_checkpoint",
    "loss_named",
    "make_optimizer",
    "match_decay",
    "multiplier",
    "recipe_named",
    "save_checkpoint",
    "steps_of",
    "train",
]
