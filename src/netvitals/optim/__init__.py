"""Optimisers that respect a network's symmetries, Muon, and optimisers for ablation.

If unsure, use :class:`BalancedAdam` with the gauges that :func:`find_gauges` proves for the model.
"""

# the symmetries of a model's loss
# how much of Adam is needed for an effect?
from netvitals.optim.ablations import EpsFloor as EpsFloor
from netvitals.optim.ablations import HomogeneityDial as HomogeneityDial
from netvitals.optim.ablations import MomentumSign as MomentumSign

# optimisers that respect them: Algorithm 2 of the paper, and one for gauges that overlap
from netvitals.optim.balanced import Balanced as Balanced  # the same with a base of one's own
from netvitals.optim.balanced import BalancedAdam
from netvitals.optim.ddc import DDC as DDC  # the same with a base of one's own
from netvitals.optim.ddc import DDCAdam
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
from netvitals.optim.gauges import GaugeDrift as GaugeDrift
from netvitals.optim.gauges import gauge_energy as gauge_energy
from netvitals.optim.gauges import orbit_position as orbit_position

# momentum with orthogonalised updates
from netvitals.optim.muon import Muon, MuonAdamW, muon_split
from netvitals.optim.muon import fused_parts as fused_parts
from netvitals.optim.precondition import AdamBase as AdamBase
from netvitals.optim.precondition import RMSBase as RMSBase
from netvitals.optim.precondition import SGDBase as SGDBase
from netvitals.optim.precondition import SignBase as SignBase
from netvitals.optim.schedules import FutureRates as FutureRates
from netvitals.optim.schedules import RatePlan as RatePlan
from netvitals.optim.schedules import group_settings as group_settings
from netvitals.optim.schedules import learning_rates as learning_rates
from netvitals.optim.zloss import z_loss  # or fix the logit shift by a term of the loss

__all__ = [
    "BalancedAdam",
    "DDCAdam",
    "Gauge",
    "Gauges",
    "Muon",
    "MuonAdamW",
    "Rescale",
    "Shift",
    "ce_shift_bias",
    "ce_shift_rows",
    "chained_rescale",
    "channel_rescale",
    "find_gauges",
    "ln_scale",
    "muon_split",
    "orbit_change",
    "relu_rescale",
    "z_loss",
]
