"""Weight drift: where do the weights drift, and what does it cost?

**If unsure, use** :func:`euler` on a batch (will the drift go on?) and :func:`sparsity` on the validation set (what has
it cost?).

* :func:`euler`: ⟨o, ∇ℓ⟩ of every example, and the layers' sums that it must equal; :func:`push` is the first alone;
* :func:`gradient_signs`, :func:`covariance_split`: the signs of gradients at a layer, and the two parts of a weight's;
* :func:`set_drift`: the dial, one number at the start;
* :func:`centre_weights`, :func:`project_gradients`, :func:`centre_activations`: training without drift;
* :func:`sparsity`, :func:`spikes`: over a whole data set in one pass; :func:`tensor_spikes`: of one tensor;
  :func:`amplification`, :func:`intermediate_peak`: of two runs, of one profile.

The watchers are the vital signs ``drift``, ``sparsity`` and ``spikes``; they end in the same formulas,
:mod:`netvitals.drift.reductions`.
"""

from netvitals.drift import dial, suppression
from netvitals.drift.dial import Dial as Dial
from netvitals.drift.dial import push, set_drift
from netvitals.drift.euler_identity import Euler as Euler
from netvitals.drift.euler_identity import LayerLaw as LayerLaw
from netvitals.drift.euler_identity import euler
from netvitals.drift.pieces import write_drift as write_drift
from netvitals.drift.reductions import heights as heights
from netvitals.drift.reductions import unit_shares as unit_shares
from netvitals.drift.signs import CovarianceSplit as CovarianceSplit
from netvitals.drift.signs import GradientSigns as GradientSigns
from netvitals.drift.signs import Reduction as Reduction
from netvitals.drift.signs import check_reduction as check_reduction
from netvitals.drift.signs import covariance_split, gradient_signs
from netvitals.drift.signs import joined as joined
from netvitals.drift.signs import row_means as row_means
from netvitals.drift.signs import split_parts as split_parts
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
from netvitals.drift.spike_meter import spikes as tensor_spikes
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
    "covariance_split",
    "dial",
    "euler",
    "gradient_signs",
    "intermediate_peak",
    "project_gradients",
    "push",
    "set_drift",
    "sparsity",
    "spikes",
    "suppression",
    "tensor_spikes",
    "weight_drift",
]
