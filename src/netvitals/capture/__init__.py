"""How tensors get out of a running model without disturbing it."""

from netvitals.anatomy.preserve import preserved, rng_state, set_rng_state
from netvitals.capture.engine.buffer import Buffer
from netvitals.capture.engine.observer import Observer
from netvitals.capture.engine.optimizer_hooks import OptimizerHooks, copies, parameter_view
from netvitals.capture.engine.roles import uncompiled, unwrapped
from netvitals.capture.engine.schedule import Schedule, detached_context, warn
from netvitals.capture.observation import Observation, check_finite, in_mode, observe, probe, split_batch
from netvitals.capture.reading import ArrayReading, Reading, Recorder, StepColumns
from netvitals.capture.site import Site, Unseen
from netvitals.capture.views import ActivationView, Layout, LinearView, ParameterView, TensorView
from netvitals.capture.vital import Metric, Vital, WatchContext

__all__ = [
    "ActivationView",
    "ArrayReading",
    "Buffer",
    "LinearView",
    "Observation",
    "Observer",
    "OptimizerHooks",
    "Layout",
    "Metric",
    "StepColumns",
    "Schedule",
    "ParameterView",
    "Reading",
    "Recorder",
    "Site",
    "TensorView",
    "Unseen",
    "Vital",
    "WatchContext",
    "detached_context",
    "check_finite",
    "copies",
    "in_mode",
    "observe",
    "parameter_view",
    "preserved",
    "probe",
    "rng_state",
    "warn",
    "set_rng_state",
    "split_batch",
    "uncompiled",
    "unwrapped",
]
