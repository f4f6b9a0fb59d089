"""How tensors get out of a running model without disturbing it."""

from netvitals.anatomy import preserved, rng_state, set_rng_state, undisturbed
from netvitals.capture.engine.buffer import Buffer

# for other packages of netvitals, not public
from netvitals.capture.engine.buffer import scalar as scalar
from netvitals.capture.engine.hook import Hook as Hook
from netvitals.capture.engine.observer import Observer
from netvitals.capture.engine.observers import Observers
from netvitals.capture.engine.optimizer_hooks import OptimizerHooks
from netvitals.capture.engine.parameters import copies, parameter_view
from netvitals.capture.engine.roles import REASONS as REASONS
from netvitals.capture.engine.roles import is_compiled as is_compiled
from netvitals.capture.engine.roles import uncompiled, unwrapped
from netvitals.capture.engine.schedule import EARLY_MEASUREMENTS, Schedule, detached_context, warn
from netvitals.capture.loss import LOSSES as LOSSES
from netvitals.capture.loss import LossFn, resolve_loss
from netvitals.capture.loss import likelihood_of as likelihood_of
from netvitals.capture.nested import check_finite
from netvitals.capture.nested import main_output as main_output
from netvitals.capture.nested import mapped as mapped
from netvitals.capture.nested import output_tensor as output_tensor
from netvitals.capture.nested import tensors as tensors
from netvitals.capture.observation import Mode, Observation, in_mode, observe, probe
from netvitals.capture.recorder import ArrayMeasurement, Measurement, Recorder, StepColumns
from netvitals.capture.reduce_over_ranks import Kind as Kind
from netvitals.capture.reduce_over_ranks import Message, ReduceOverRanks
from netvitals.capture.result import Result, skipped_lines
from netvitals.capture.result import Several as Several
from netvitals.capture.result import one_screen as one_screen
from netvitals.capture.result import plain as plain
from netvitals.capture.selection import Only, picked
from netvitals.capture.selection import lets_through as lets_through
from netvitals.capture.shards import is_distributed as is_distributed
from netvitals.capture.shards import is_put_away as is_put_away
from netvitals.capture.shards import local as local
from netvitals.capture.shards import piece_of as piece_of
from netvitals.capture.shards import pieces_of as pieces_of
from netvitals.capture.shards import tensor_parallel_groups as tensor_parallel_groups
from netvitals.capture.site import Site
from netvitals.capture.streaming import UNREACHED as UNREACHED
from netvitals.capture.streaming import Progress as Progress
from netvitals.capture.streaming import stream_over as stream_over
from netvitals.capture.task import Task, batches_of, task_of
from netvitals.capture.task import in_double as in_double
from netvitals.capture.task import inputs_of as inputs_of
from netvitals.capture.task import model_in as model_in
from netvitals.capture.tensor_shard import TensorShard as TensorShard
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
    "EARLY_MEASUREMENTS",
    "ActivationView",
    "ArrayMeasurement",
    "Buffer",
    "HeadsView",
    "Layout",
    "LinearView",
    "LossFn",
    "Measurement",
    "Message",
    "Metric",
    "Mode",
    "Observation",
    "Observer",
    "Observers",
    "Only",
    "OptimizerHooks",
    "ParameterView",
    "ProductView",
    "Recorder",
    "ReduceOverRanks",
    "Result",
    "RouterView",
    "Schedule",
    "Site",
    "StepColumns",
    "Task",
    "TensorView",
    "Vital",
    "WatchContext",
    "batches_of",
    "check_finite",
    "copies",
    "detached_context",
    "in_mode",
    "observe",
    "parameter_view",
    "picked",
    "preserved",
    "probe",
    "resolve_loss",
    "rng_state",
    "set_rng_state",
    "skipped_lines",
    "task_of",
    "uncompiled",
    "undisturbed",
    "unwrapped",
    "warn",
]
