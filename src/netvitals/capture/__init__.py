"""How tensors get out of a running model without disturbing it."""

from netvitals.anatomy.preserve import preserved, rng_state, set_rng_state, undisturbed
from netvitals.capture.engine.buffer import Buffer
from netvitals.capture.engine.observer import Observer
from netvitals.capture.engine.observers import Observers
from netvitals.capture.engine.optimizer_hooks import OptimizerHooks
from netvitals.capture.engine.parameters import copies, parameter_view
from netvitals.capture.engine.roles import uncompiled, unwrapped
from netvitals.capture.engine.schedule import EARLY_MEASUREMENTS, Schedule, detached_context, warn
from netvitals.capture.loss import LossFn, resolve_loss
from netvitals.capture.nested import check_finite
from netvitals.capture.observation import Mode, Observation, in_mode, observe, probe
from netvitals.capture.recorder import ArrayMeasurement, Measurement, Recorder, StepColumns
from netvitals.capture.reduce_over_ranks import Message, ReduceOverRanks
from netvitals.capture.result import Result, skipped_lines
from netvitals.capture.selection import Only, picked
from netvitals.capture.site import Site
from netvitals.capture.task import Task, batches_of, task_of
from netvitals.capture.views import (
    ActivationView,
    HeadsView,
    Layout,
    LinearView,
    ParameterView,
    ProductView,
    RouterView,
    TensorView,
)
from netvitals.capture.vital import Metric, Vital, WatchContext

__all__ = [
    "ActivationView",
    "ArrayMeasurement",
    "Buffer",
    "LinearView",
    "Observation",
    "Observer",
    "OptimizerHooks",
    "Layout",
    "LossFn",
    "Message",
    "Metric",
    "Mode",
    "Only",
    "ReduceOverRanks",
    "StepColumns",
    "EARLY_MEASUREMENTS",
    "Schedule",
    "ParameterView",
    "HeadsView",
    "ProductView",
    "RouterView",
    "Observers",
    "Measurement",
    "Recorder",
    "Result",
    "Site",
    "Task",
    "TensorView",
    "Vital",
    "WatchContext",
    "detached_context",
    "batches_of",
    "check_finite",
    "copies",
    "in_mode",
    "observe",
    "parameter_view",
    "picked",
    "preserved",
    "probe",
    "resolve_loss",
    "rng_state",
    "warn",
    "set_rng_state",
    "skipped_lines",
    "task_of",
    "uncompiled",
    "unwrapped",
    "undisturbed",
]
