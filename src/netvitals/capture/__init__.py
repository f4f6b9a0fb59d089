"""How tensors get out of a running model without disturbing it."""

from netvitals.anatomy import preserved as preserved
from netvitals.anatomy import rng_state as rng_state
from netvitals.anatomy import set_rng_state as set_rng_state
from netvitals.anatomy import undisturbed as undisturbed
from netvitals.capture.engine.buffer import Buffer as Buffer
from netvitals.capture.engine.buffer import scalar as scalar
from netvitals.capture.engine.hook import BeforeScripting as BeforeScripting
from netvitals.capture.engine.hook import Hook as Hook
from netvitals.capture.engine.observer import Observer as Observer
from netvitals.capture.engine.observers import Observers as Observers
from netvitals.capture.engine.optimizer_hooks import OptimizerHooks as OptimizerHooks
from netvitals.capture.engine.parameters import copies as copies
from netvitals.capture.engine.parameters import parameter_view as parameter_view
from netvitals.capture.engine.roles import REASONS as REASONS
from netvitals.capture.engine.roles import is_compiled as is_compiled
from netvitals.capture.engine.roles import uncompiled as uncompiled
from netvitals.capture.engine.roles import unwrapped as unwrapped
from netvitals.capture.engine.schedule import EARLY_MEASUREMENTS as EARLY_MEASUREMENTS
from netvitals.capture.engine.schedule import Schedule as Schedule
from netvitals.capture.engine.schedule import detached_context as detached_context
from netvitals.capture.engine.schedule import warn as warn
from netvitals.capture.loss import LOSSES as LOSSES
from netvitals.capture.loss import LossFn as LossFn
from netvitals.capture.loss import likelihood_of as likelihood_of
from netvitals.capture.loss import resolve_loss as resolve_loss
from netvitals.capture.nested import check_finite as check_finite
from netvitals.capture.nested import main_output as main_output
from netvitals.capture.nested import mapped as mapped
from netvitals.capture.nested import output_tensor as output_tensor
from netvitals.capture.nested import tensors as tensors
from netvitals.capture.observation import Mode as Mode
from netvitals.capture.observation import Observation as Observation
from netvitals.capture.observation import in_mode as in_mode
from netvitals.capture.observation import observe as observe
from netvitals.capture.observation import probe as probe
from netvitals.capture.recorder import ArrayMeasurement, Measurement, Recorder
from netvitals.capture.recorder import StepColumns as StepColumns
from netvitals.capture.reduce_over_ranks import Kind as Kind
from netvitals.capture.reduce_over_ranks import Message as Message
from netvitals.capture.reduce_over_ranks import ReduceOverRanks as ReduceOverRanks
from netvitals.capture.result import Result
from netvitals.capture.result import Several as Several
from netvitals.capture.result import one_screen as one_screen
from netvitals.capture.result import plain as plain
from netvitals.capture.result import skipped_lines as skipped_lines
from netvitals.capture.selection import Only as Only
from netvitals.capture.selection import lets_through as lets_through
from netvitals.capture.selection import picked as picked
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
from netvitals.capture.task import LEFT_OUT as LEFT_OUT
from netvitals.capture.task import Task as Task
from netvitals.capture.task import batches_of as batches_of
from netvitals.capture.task import check_values as check_values
from netvitals.capture.task import in_double as in_double
from netvitals.capture.task import inputs_of as inputs_of
from netvitals.capture.task import loss_and_batch as loss_and_batch
from netvitals.capture.task import model_in as model_in
from netvitals.capture.task import task_of as task_of
from netvitals.capture.tensor_shard import TensorShard as TensorShard
from netvitals.capture.views import (
    ActivationView,
    HeadsView,
    LinearView,
    ParameterView,
    ProductView,
    RouterView,
    TensorView,
)
from netvitals.capture.views import Layout as Layout
from netvitals.capture.vital import Metric, Vital, WatchContext

__all__ = [
    "ActivationView",
    "ArrayMeasurement",
    "HeadsView",
    "LinearView",
    "Measurement",
    "Metric",
    "ParameterView",
    "ProductView",
    "Recorder",
    "Result",
    "RouterView",
    "Site",
    "TensorView",
    "Vital",
    "WatchContext",
]
