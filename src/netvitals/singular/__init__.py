"""Dead directions: which directions of a network are degenerate, of what order, and what that says of learning.

If unsure, use :func:`readout`: it looks for dead directions at one checkpoint and says what they contribute.

``readout(…, static=True)`` adds what holds in any phase of training: kernels of norms, the stream's floor, values and
outputs of attention by head, and shares of units; :func:`rates` has the K-FAC rates of every layer. The parts are in
the modules below, with the classes of results.

What runs a model takes ``(model, loss_fn, batch)``, the loss as "ce", "mse" or torch's own; what needs no loss takes
``(model, batch)``. What needs no model is a formula: ``kl_order``, ``nu``, ``rlct_…``, ``predict_rates``.
"""

import importlib
from typing import TYPE_CHECKING, Any

from netvitals.singular.adapters.adapter import tangential_lora
from netvitals.singular.adapters.pruning import pruning_plan
from netvitals.singular.adapters.tangent import safe_directions
from netvitals.singular.checkpoint.rates import rates
from netvitals.singular.checkpoint.readout import readout
from netvitals.singular.checkpoint.spectra import spectra_history
from netvitals.singular.laws.fluctuation import nu
from netvitals.singular.laws.prediction import predict_rates
from netvitals.singular.laws.rlct import rlct_crossing, rlct_deep_linear, rlct_reduced_rank
from netvitals.singular.moments.kronecker import kfac
from netvitals.singular.networks import zoo
from netvitals.singular.orders.nature import gauge_or_singular
from netvitals.singular.orders.order import kl_order
from netvitals.singular.orders.rates import rate_fit
from netvitals.singular.orders.spectrum import classify_spectrum
from netvitals.singular.sampling.history import coefficient_by_part, coefficient_history
from netvitals.singular.sampling.llc import learning_coefficient

if TYPE_CHECKING:
    from netvitals.singular.checkpoint.dead_directions import DeadDirections as DeadDirections
    from netvitals.singular.checkpoint.dead_directions import measure as measure
    from netvitals.singular.checkpoint.readout import Readout as Readout
    from netvitals.singular.checkpoint.readout import check_task as check_task
    from netvitals.singular.checkpoint.readout import distance as distance
    from netvitals.singular.checkpoint.readout import spectrum_along as spectrum_along
    from netvitals.singular.checkpoint.stream import StreamSigma as StreamSigma
    from netvitals.singular.checkpoint.stream import inside as inside
    from netvitals.singular.checkpoint.stream import sigma_stream as sigma_stream
    from netvitals.singular.checkpoint.tracker import change_points as change_points
    from netvitals.singular.checkpoint.tracker import condition_jumps as condition_jumps
    from netvitals.singular.checkpoint.tracker import phase as phase
    from netvitals.singular.laws.fluctuation import nu_data_free as nu_data_free
    from netvitals.singular.laws.rlct import rlct_single as rlct_single
    from netvitals.singular.orders.order import KLOrder as KLOrder
    from netvitals.singular.orders.spectrum import Classified as Classified
    from netvitals.singular.sampling.evidence import WatanabeTriple as WatanabeTriple
    from netvitals.singular.sampling.history import CoefficientHistory as CoefficientHistory
    from netvitals.singular.sampling.history import PartHistories as PartHistories

__all__ = [
    "classify_spectrum",
    "coefficient_by_part",
    "coefficient_history",
    "gauge_or_singular",
    "kfac",
    "kl_order",
    "learning_coefficient",
    "nu",
    "predict_rates",
    "pruning_plan",
    "rate_fit",
    "rates",
    "readout",
    "rlct_crossing",
    "rlct_deep_linear",
    "rlct_reduced_rank",
    "safe_directions",
    "spectra_history",
    "tangential_lora",
    "zoo",
]

_INTERNAL = {  # for the packages above, not public
    "checkpoint.dead_directions": "DeadDirections measure",
    "checkpoint.readout": "Readout check_task distance spectrum_along",
    "checkpoint.stream": "StreamSigma inside sigma_stream",
    "checkpoint.tracker": "change_points condition_jumps phase",
    "laws.fluctuation": "nu_data_free",
    "laws.rlct": "rlct_single",
    "orders.order": "KLOrder",
    "orders.spectrum": "Classified",
    "sampling.evidence": "WatanabeTriple",
    "sampling.history": "CoefficientHistory PartHistories",
}
_HOME = {name: home for home, names in _INTERNAL.items() for name in names.split()}


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        home = _HOME.get(name)
        if home is None:
            raise AttributeError(f"netvitals.singular has no {name!r}; it has {', '.join(__all__)}")
        return getattr(importlib.import_module(f"netvitals.singular.{home}"), name)
