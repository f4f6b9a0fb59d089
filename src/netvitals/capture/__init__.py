"""How tensors get out of a running model without disturbing it."""

from netvitals.capture.preserve import preserved, rng_state, set_rng_state
from netvitals.capture.reading import ArrayReading, Reading, Sheet
from netvitals.capture.sight import ActivationSight, LinearSight, ParameterSight, TensorSight
from netvitals.capture.site import Site, Unseen
from netvitals.capture.vital import Vital

__all__ = ["ActivationSight", "ArrayReading", "LinearSight", "ParameterSight", "Reading", "Sheet", "Site",
           "TensorSight", "Unseen", "Vital", "preserved", "rng_state", "set_rng_state"]
