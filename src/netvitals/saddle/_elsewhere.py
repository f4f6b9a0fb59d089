"""Names that were in ``netvitals.saddle`` and are found in their modules now; the old ones go with the next version."""

from __future__ import annotations

_MODULES = {
    "netvitals.anatomy.wiring": "Link Links find_links recorded",
    "netvitals.saddle.laws.blocks": "BlockChain",
    "netvitals.saddle.laws.chain": "ScalarChain",
    "netvitals.saddle.laws.closures": "OffBlock duhamel off_block quasi_steady rotation_coefficients",
    "netvitals.saddle.laws.escape": "balanced leading next_to_leading regime resummed",
    "netvitals.saddle.laws.homotopy": "Attribution attribute hitting_time homotopy_slice",
    "netvitals.saddle.laws.integration": "Paths integrate",
    "netvitals.saddle.laws.perron_modes": (
        "BlockGrowth Perron Truncations block_growth graded_example jacobian_blocks perron stage_matrix truncations"
    ),
    "netvitals.saddle.laws.perturbation": "Expansion expansion gap_velocity measured_order",
    "netvitals.saddle.laws.stages": "forecast_rank stage_integral transfer",
    "netvitals.saddle.measure.accounting": "StepAccount",
    "netvitals.saddle.measure.bottlenecks": "layer_scale positional_drive",
    "netvitals.saddle.measure.exponent": "Collapse collapse",
    "netvitals.saddle.measure.forecasting": "start_scale",
    "netvitals.saddle.measure.pairs": "Pair imbalances",
    "netvitals.saddle.measure.signal": (
        "Bracket Nondegeneracy SignalEnergy bracket comparison exit_time nondegeneracy signal_energy"
    ),
    "netvitals.saddle.students.network": "ansatz_stack gradients losses normalized_rates output permuted project",
    "netvitals.saddle.students.task": "Sample aligned_sample antithetic_sample",
    "netvitals.saddle.students.trajectories": "FlowRun flow",
}

HOMES: dict[str, str] = {
    "account": "netvitals.saddle.measure.accounting.measure_steps",
    "snapshot": "netvitals.saddle.measure.plateau.measure_plateau",
    "stack_snapshots": "netvitals.saddle.measure.plateau.measure_plateaus",
    "PlateauForecast": "netvitals.vitals.PlateauForecast",
    "StepAccounting": "netvitals.vitals.StepAccounting",
    **{name: f"{module}.{name}" for module, names in _MODULES.items() for name in names.split()},
}
