"""Weight drift: where do the weights drift, and what does it cost?

**If unsure, use** :func:`euler` on a batch (will the drift go on?) and :func:`sparsity` on the validation set (what has
it cost?).

* :func:`euler`: ⟨o, ∇ℓ⟩ of every example, and the layers' sums that it must equal; :func:`push` is the first alone;
* :func:`signs`: the sign of the expected gradient on pre-activations, over re-initialisations of a model;
  :func:`random_data_control`: whether it drifts without data;
* :func:`set_drift`: the dial, one number at the start;
* :func:`centre_weights`, :func:`project_gradients`, :func:`centre_activations`: training without drift;
* :func:`sparsity`, :func:`spikes`: over a whole data set in one pass;
  :func:`amplification`, :func:`intermediate_peak`: of two runs, of one profile;
* :func:`cliff`: from which sparsity on accuracy falls, fitted to one's own points.

The watchers are the vital signs ``drift``, ``sparsity`` and ``spikes``; they end in the same formulas,
:mod:`netvitals.drift.reductions`.
"""

from netvitals.drift import dial, suppression
from netvitals.drift.cliffs import Cliff as Cliff
from netvitals.drift.cliffs import cliff
from netvitals.drift.cliffs import falls as falls
from netvitals.drift.dial import Dial as Dial
from netvitals.drift.dial import push, set_drift
from netvitals.drift.euler_identity import Euler as Euler
from netvitals.drift.euler_identity import LayerLaw as LayerLaw
from netvitals.drift.euler_identity import euler
from netvitals.drift.gradients import SIGN_METRICS as SIGN_METRICS
from netvitals.drift.gradients import SPLIT_METRICS as SPLIT_METRICS
from netvitals.drift.gradients import Reduction as Reduction
from netvitals.drift.gradients import SignWriter as SignWriter
from netvitals.drift.pieces import write_drift as write_drift
from netvitals.drift.random_data import DriftPair as DriftPair
from netvitals.drift.random_data import RandomDataControl as RandomDataControl
from netvitals.drift.random_data import random_data_control
from netvitals.drift.reductions import heights as heights
from netvitals.drift.reductions import unit_shares as unit_shares
from netvitals.drift.reinitialisation import LayerSigns as LayerSigns
from netvitals.drift.reinitialisation import SignAnalysis as SignAnalysis
from netvitals.drift.reinitialisation import SignObservation as SignObservation
from netvitals.drift.reinitialisation import signs
from netvitals.drift.sparsity_meter import SOFT_ABSOLUTE as SOFT_ABSOLUTE
from netvitals.drift.sparsity_meter import SOFT_RELATIVE as SOFT_RELATIVE
from netvitals.drift.sparsity_meter import LayerFlops as LayerFlops
from netvitals.drift.sparsity_meter import SiteSparsity as SiteSparsity
from netvitals.drift.sparsity_meter import SparsityReport as SparsityReport
from netvitals.drift.sparsity_meter import measure as sparsity
from netvitals.drift.spike_meter import SPIKE_RMS as SPIKE_RMS
from netvitals.drift.spike_meter import SiteSpikes as SiteSpikes
from netvitals.drift.spike_meter import SpikeReport as SpikeReport
from netvitals.drift.spike_meter import amplification, intermediate_peak
from netvitals.drift.spike_meter import measure as spikes
from netvitals.drift.suppression import Suppression as Suppression
from netvitals.drift.suppression import centre_activations, centre_weights, centred, project_gradients
from netvitals.drift.weights import DRIFT_METRICS as DRIFT_METRICS
from netvitals.drift.weights import ROLES as ROLES
from netvitals.drift.weights import WEIGHT_METRICS as WEIGHT_METRICS
from netvitals.drift.weights import Role as Role
from netvitals.drift.weights import WeightDrift as WeightDrift
from netvitals.drift.weights import drift_columns as drift_columns
from netvitals.drift.weights import role as role
from netvitals.drift.weights import row_std as row_std
from netvitals.drift.weights import weight_columns as weight_columns
from netvitals.drift.weights import weight_drift

__all__ = [
    "amplification",
    "centre_activations",
    "centre_weights",
    "centred",
    "cliff",
    "dial",
    "euler",
    "intermediate_peak",
    "project_gradients",
    "push",
    "random_data_control",
    "set_drift",
    "signs",
    "sparsity",
    "spikes",
    "suppression",
    "weight_drift",
]
