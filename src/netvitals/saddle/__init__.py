"""Saddle escape: the imbalance identity, the reduced flow, escape times, plateau forecast."""

from netvitals.saddle.accounting import StepAccount, StepAccounting, account
from netvitals.saddle.blocks import BlockChain
from netvitals.saddle.bottleneck import Bottleneck, bottleneck, layer_scale, positional_drive
from netvitals.saddle.chain import ScalarChain
from netvitals.saddle.closures import OffBlock, duhamel, off_block, quasi_steady, rotation_coefficients
from netvitals.saddle.escape import EscapeTime, balanced, escape_time, leading, next_to_leading, regime, resummed
from netvitals.saddle.expansion import Expansion, expansion, gap_velocity, measured_order
from netvitals.saddle.exponent import Collapse, ExponentFit, collapse, fit_exponent
from netvitals.saddle.flow import ReducedFlow, reduced_flow
from netvitals.saddle.forecast import Forecast, forecast, forecast_live, optimizer_rule, start_scale
from netvitals.saddle.homotopy import Attribution, attribute, hitting_time, homotopy_slice
from netvitals.saddle.imbalance import Imbalance, PairImbalance, imbalance
from netvitals.saddle.integrate import Paths, integrate
from netvitals.saddle.links import Link, Links, find_links, recorded
from netvitals.saddle.monitor import PlateauForecast
from netvitals.saddle.network import (
    ansatz_stack,
    gradients,
    he_stack,
    losses,
    normalized_rates,
    output,
    permuted,
    project,
)
from netvitals.saddle.perron import (
    Perron,
    Truncations,
    graded_example,
    jacobian_blocks,
    perron,
    stage_matrix,
    truncations,
)
from netvitals.saddle.plan import Plan, plan
from netvitals.saddle.plateau import Snapshot, snapshot, stack_snapshots
from netvitals.saddle.signal import (
    Bracket,
    Nondegeneracy,
    SignalEnergy,
    bracket,
    comparison,
    exit_time,
    nondegeneracy,
    signal_energy,
)
from netvitals.saddle.stages import Stages, forecast_rank, stage_integral, stage_law, transfer
from netvitals.saddle.task import Sample, Teacher, aligned_sample, antithetic_sample, teacher
from netvitals.saddle.theory import Drive, drive
from netvitals.saddle.trajectories import Descent, FlowRun, descend, flow

__all__ = [
    "Attribution", "BlockChain", "Bottleneck", "Bracket", "Collapse", "Descent", "Drive", "EscapeTime", "Expansion",
    "ExponentFit", "FlowRun", "Forecast", "Imbalance", "Link", "Links", "Nondegeneracy", "OffBlock", "PairImbalance",
    "Paths", "Perron", "Plan", "PlateauForecast", "ReducedFlow", "Sample", "ScalarChain", "SignalEnergy", "Snapshot",
    "Stages", "StepAccount", "StepAccounting", "Teacher", "Truncations", "account", "aligned_sample", "ansatz_stack",
    "antithetic_sample", "attribute", "balanced", "bottleneck", "bracket", "collapse", "comparison", "descend",
    "drive", "duhamel", "escape_time", "exit_time", "expansion", "find_links", "fit_exponent", "flow", "forecast",
    "forecast_live", "forecast_rank", "gap_velocity", "graded_example", "gradients", "he_stack", "hitting_time",
    "homotopy_slice", "imbalance", "integrate", "jacobian_blocks", "layer_scale", "leading", "losses",
    "measured_order", "next_to_leading", "nondegeneracy", "normalized_rates", "off_block", "optimizer_rule", "output",
    "permuted", "perron", "plan", "positional_drive", "project", "quasi_steady", "recorded", "reduced_flow", "regime",
    "resummed", "rotation_coefficients", "signal_energy", "snapshot", "stack_snapshots", "stage_integral",
    "stage_law", "stage_matrix", "start_scale", "teacher", "transfer", "truncations",
]
