"""Optimisers: DDCAdam and its gauges, Muon, and the ablation optimisers."""

from netvitals.optim.ablations import EpsFloor, HomogeneityDial, MomentumSign
from netvitals.optim.ddc import DDC
from netvitals.optim.ddcadam import DDCAdam
from netvitals.optim.finder import Gauges, find_gauges, orbit_change
from netvitals.optim.gauges import (
    Block,
    Gauge,
    GaugeDrift,
    Rescale,
    Shift,
    ce_shift_bias,
    ce_shift_rows,
    chained_rescale,
    channel_rescale,
    gauge_energy,
    ln_scale,
    orbit_position,
    relu_rescale,
)
from netvitals.optim.muon import Muon, MuonAdamW, fused_parts, muon_split, newton_schulz
from netvitals.optim.precondition import AdamBase, Preconditioner, RMSBase, SignBase
from netvitals.optim.symmetry import Equivariance, equivariance
from netvitals.optim.zloss import z_loss

__all__ = [
    "AdamBase",
    "Block",
    "DDC",
    "DDCAdam",
    "EpsFloor",
    "Equivariance",
    "Gauge",
    "GaugeDrift",
    "Gauges",
    "HomogeneityDial",
    "MomentumSign",
    "Muon",
    "MuonAdamW",
    "Preconditioner",
    "RMSBase",
    "Rescale",
    "Shift",
    "SignBase",
    "ce_shift_bias",
    "ce_shift_rows",
    "chained_rescale",
    "channel_rescale",
    "equivariance",
    "find_gauges",
    "fused_parts",
    "gauge_energy",
    "ln_scale",
    "muon_split",
    "newton_schulz",
    "orbit_change",
    "orbit_position",
    "relu_rescale",
    "z_loss",
]
