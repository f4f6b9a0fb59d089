"""Optimisers that respect a network's symmetries, Muon, and optimisers for ablation.

If unsure, use :class:`DDCAdam` with the gauges that :func:`find_gauges` proves for the model.
"""

# the symmetries of a model's loss
# how much of Adam is needed for an effect?
from netvitals.optim.ablations import EpsFloor, HomogeneityDial, MomentumSign
from netvitals.optim.ddc import DDC  # the same with a base of one's own

# optimisers that respect them
from netvitals.optim.ddcadam import DDCAdam
from netvitals.optim.finder import Gauges, find_gauges, orbit_change
from netvitals.optim.gauges import (
    Gauge,
    Rescale,
    Shift,
    ce_shift_bias,
    ce_shift_rows,
    chained_rescale,
    channel_rescale,
    ln_scale,
    relu_rescale,
)

# momentum with orthogonalised updates
from netvitals.optim.muon import Muon, MuonAdamW, fused_parts, muon_split
from netvitals.optim.precondition import AdamBase, RMSBase, SignBase
from netvitals.optim.zloss import z_loss  # or fix the logit shift by a term of the loss

__all__ = [
    "Gauges",
    "find_gauges",
    "orbit_change",
    "Gauge",
    "Rescale",
    "Shift",
    "ce_shift_bias",
    "ce_shift_rows",
    "chained_rescale",
    "channel_rescale",
    "ln_scale",
    "relu_rescale",
    "DDCAdam",
    "DDC",
    "AdamBase",
    "RMSBase",
    "SignBase",
    "z_loss",
    "Muon",
    "MuonAdamW",
    "fused_parts",
    "muon_split",
    "EpsFloor",
    "HomogeneityDial",
    "MomentumSign",
]

# imported from their modules now; the old names go with the next version
_HOMES = {
    "gauges": "GaugeDrift gauge_energy orbit_position",
    "muon": "newton_schulz",
    "precondition": "Preconditioner",
    "symmetry": "Equivariance equivariance",
}
