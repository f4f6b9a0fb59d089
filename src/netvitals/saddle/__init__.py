"""Saddle escape: the imbalance identity, the reduced flow, escape times, plateau forecast."""

from netvitals._moved import moved
from netvitals.anatomy.wiring import Link, Links, find_links, recorded
from netvitals.saddle.laws.blocks import BlockChain
from netvitals.saddle.laws.chain import ScalarChain
from netvitals.saddle.laws.closures import OffBlock, duhamel, off_block, quasi_steady, rotation_coefficients
from netvitals.saddle.laws.drives import Drive, drive
from netvitals.saddle.laws.escape import EscapeTime, balanced, escape_time, leading, next_to_leading, regime, resummed
from netvitals.saddle.laws.flow import ReducedFlow, reduced_flow
from netvitals.saddle.laws.homotopy import Attribution, attribute, hitting_time, homotopy_slice
from netvitals.saddle.laws.integration import Paths, integrate
from netvitals.saddle.laws.perron_modes import (
    Perron,
    Truncations,
    graded_example,
    jacobian_blocks,
    perron,
    stage_matrix,
    truncations,
)
from netvitals.saddle.laws.perturbation import Expansion, expansion, gap_velocity, measured_order
from netvitals.saddle.laws.planning import PlateauPlan, plan
from netvitals.saddle.laws.stages import Stages, forecast_rank, stage_integral, stage_law, transfer
from netvitals.saddle.measure.accounting import StepAccount, account
from netvitals.saddle.measure.bottlenecks import Bottleneck, bottleneck, layer_scale, positional_drive
from netvitals.saddle.measure.exponent import Collapse, ExponentFit, collapse, fit_exponent
from netvitals.saddle.measure.forecasting import Forecast, forecast, forecast_live, optimizer_rule, start_scale
from netvitals.saddle.measure.identity import ImbalanceIdentity, PairImbalance, imbalance
from netvitals.saddle.measure.pairs import ChainImbalance, Pair, chain_imbalance, imbalances
from netvitals.saddle.measure.plateau import Snapshot, snapshot, stack_snapshots
from netvitals.saddle.measure.signal import (
    Bracket,
    Nondegeneracy,
    SignalEnergy,
    bracket,
    comparison,
    exit_time,
    nondegeneracy,
    signal_energy,
)
from netvitals.saddle.students.network import (
    ansatz_stack,
    gradients,
    he_stack,
    losses,
    normalized_rates,
    output,
    permuted,
    project,
)
from netvitals.saddle.students.task import Sample, Teacher, aligned_sample, antithetic_sample, teacher
from netvitals.saddle.students.trajectories import Descent, FlowRun, descend, flow

__all__ = [
    "Attribution",
    "BlockChain",
    "Bottleneck",
    "Bracket",
    "ChainImbalance",
    "Collapse",
    "Descent",
    "Drive",
    "EscapeTime",
    "Expansion",
    "ExponentFit",
    "FlowRun",
    "Forecast",
    "ImbalanceIdentity",
    "Link",
    "Links",
    "Nondegeneracy",
    "OffBlock",
    "Pair",
    "PairImbalance",
    "Paths",
    "Perron",
    "PlateauPlan",
    "ReducedFlow",
    "Sample",
    "ScalarChain",
    "SignalEnergy",
    "Snapshot",
    "Stages",
    "StepAccount",
    "Teacher",
    "Truncations",
    "account",
    "aligned_sample",
    "ansatz_stack",
    "antithetic_sample",
    "attribute",
    "balanced",
    "bottleneck",
    "bracket",
    "chain_imbalance",
    "collapse",
    "comparison",
    "descend",
    "drive",
    "duhamel",
    "escape_time",
    "exit_time",
    "expansion",
    "find_links",
    "fit_exponent",
    "flow",
    "forecast",
    "forecast_live",
    "forecast_rank",
    "gap_velocity",
    "graded_example",
    "gradients",
    "he_stack",
    "hitting_time",
    "homotopy_slice",
    "imbalance",
    "imbalances",
    "integrate",
    "jacobian_blocks",
    "layer_scale",
    "leading",
    "losses",
    "measured_order",
    "next_to_leading",
    "nondegeneracy",
    "normalized_rates",
    "off_block",
    "optimizer_rule",
    "output",
    "permuted",
    "perron",
    "plan",
    "positional_drive",
    "project",
    "quasi_steady",
    "recorded",
    "reduced_flow",
    "regime",
    "resummed",
    "rotation_coefficients",
    "signal_energy",
    "snapshot",
    "stack_snapshots",
    "stage_integral",
    "stage_law",
    "stage_matrix",
    "start_scale",
    "teacher",
    "transfer",
    "truncations",
]

__getattr__ = moved(
    __name__,
    {"PlateauForecast": "netvitals.vitals.PlateauForecast", "StepAccounting": "netvitals.vitals.StepAccounting"},
)
