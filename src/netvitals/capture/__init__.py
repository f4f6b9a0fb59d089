"""How tensors get out of a running model without disturbing it."""

from netvitals.anatomy.preserve import preserved, rng_state, set_rng_state
from netvitals.capture.engine.journal import Journal
from netvitals.capture.engine.looker import Looker
from netvitals.capture.engine.movement import Movement, copies, parameter_sight
from netvitals.capture.engine.panel import Panel, aside, say
from netvitals.capture.engine.roles import uncompiled, unwrapped
from netvitals.capture.probe import Look, check_finite, in_manner, look, probe, split_batch
from netvitals.capture.reading import ArrayReading, Page, Reading, Sheet
from netvitals.capture.sight import ActivationSight, LinearSight, ParameterSight, TensorSight
from netvitals.capture.site import Site, Unseen
from netvitals.capture.stack import ActivationStack, Outline
from netvitals.capture.vital import Vital

__all__ = ["ActivationSight", "ActivationStack", "ArrayReading", "Journal", "LinearSight", "Look", "Looker",
           "Movement", "Outline", "Page", "Panel", "ParameterSight", "Reading", "Sheet", "Site",
           "TensorSight", "Unseen", "Vital", "aside", "check_finite", "copies", "in_manner", "look",
           "parameter_sight", "preserved", "probe", "rng_state", "say", "set_rng_state", "split_batch", "uncompiled",
           "unwrapped"]
