"""Saddle escape: why the loss is flat, and when it will drop.

**If unsure, use** :func:`plateau` on the network you train (or watch it with the vital sign ``plateau``),
:func:`plan` before you train, :func:`imbalance` to see which layer is being fed.

On a network (``saddle.measure``):

* :func:`imbalance`: Δ of every pair of layers, its rate of change from both sides, and the defect;
* :func:`imbalance_over_time`: Δ over a run, and what plain gradient descent leaves unexplained;
* :func:`plateau`: when the plateau ends, with an interval, or why that cannot be told;
* :func:`measure_plateau`: a measurement of a network on its plateau, which the forecast rests on;
* :func:`bottleneck`: which layers are small, and the law they imply;
* :func:`measure_steps`: what an optimizer step did to Δ, beside plain SGD; the vital sign ``accounting`` in a watch;
* :func:`signal_energy`: how strongly a module follows the first mode of its data, and what feeds this;
* :func:`fit_exponent`: the power of ε from measured escape times.

From theory, without a network (``saddle.laws``):

* :func:`plan`: from a wanted plateau to (ε, r) and back; :func:`escape_time`: four formulas and the integral;
* :func:`reduced_flow`: the scalar chain in both clocks; :func:`drive`: what an activation feeds it with;
* :func:`stage_law`: when each mode of a teacher is learnt.

A plateau made on purpose (``saddle.students``): :func:`teacher`, :func:`he_stack`, :func:`descend`.

What proofs and studies need besides (chains, blocks, closures, homotopy, Perron modes, signal energy, flows of stacks)
is in the modules of these three folders.
"""

from netvitals.saddle.ends import plateau
from netvitals.saddle.laws.drives import Drive as Drive
from netvitals.saddle.laws.drives import drive
from netvitals.saddle.laws.escape import EscapeTime, escape_time
from netvitals.saddle.laws.flow import ReducedFlow as ReducedFlow
from netvitals.saddle.laws.flow import reduced_flow
from netvitals.saddle.laws.planning import PlateauPlan as PlateauPlan
from netvitals.saddle.laws.planning import plan
from netvitals.saddle.measure.accounting import StepAccounts as StepAccounts
from netvitals.saddle.measure.accounting import measure_steps
from netvitals.saddle.measure.accounting import named_terms as named_terms
from netvitals.saddle.measure.accounting import pair_numbers as pair_numbers
from netvitals.saddle.measure.bottlenecks import Bottleneck as Bottleneck
from netvitals.saddle.measure.bottlenecks import bottleneck
from netvitals.saddle.measure.conservation import ConservationLaws as ConservationLaws
from netvitals.saddle.measure.conservation import conserved
from netvitals.saddle.measure.exponent import ExponentFit as ExponentFit
from netvitals.saddle.measure.exponent import fit_exponent
from netvitals.saddle.measure.forecasting import EscapeForecast
from netvitals.saddle.measure.forecasting import no_forecast as no_forecast
from netvitals.saddle.measure.forecasting import optimizer_rule as optimizer_rule
from netvitals.saddle.measure.identity import ImbalanceIdentity as ImbalanceIdentity
from netvitals.saddle.measure.identity import PairImbalance as PairImbalance
from netvitals.saddle.measure.identity import imbalance
from netvitals.saddle.measure.module_signal import ModuleSignal as ModuleSignal
from netvitals.saddle.measure.module_signal import signal_energy
from netvitals.saddle.measure.outlook import LEAVES as LEAVES
from netvitals.saddle.measure.outlook import forecast_escape as forecast_escape
from netvitals.saddle.measure.over_time import ImbalanceHistory as ImbalanceHistory
from netvitals.saddle.measure.over_time import imbalance_over_time
from netvitals.saddle.measure.pairs import ChainImbalance as ChainImbalance
from netvitals.saddle.measure.pairs import chain_imbalance
from netvitals.saddle.measure.pairs import imbalance_of as imbalance_of
from netvitals.saddle.measure.pairs import layer_pairs as layer_pairs
from netvitals.saddle.measure.pairs import pair_terms as pair_terms
from netvitals.saddle.measure.plateau import Snapshot as Snapshot
from netvitals.saddle.measure.plateau import fall_speed as fall_speed
from netvitals.saddle.measure.plateau import measure_plateau
from netvitals.saddle.rollout.escape import escape_rollout as escape_rollout
from netvitals.saddle.rollout.renewal import EscapeRollouts as EscapeRollouts
from netvitals.saddle.students.network import he_stack
from netvitals.saddle.students.task import Teacher as Teacher
from netvitals.saddle.students.task import teacher
from netvitals.saddle.students.trajectories import Descent as Descent
from netvitals.saddle.students.trajectories import descend

__all__ = [
    # measure
    "EscapeForecast",
    "bottleneck",
    "chain_imbalance",
    "conserved",
    "fit_exponent",
    "imbalance",
    "imbalance_over_time",
    "measure_plateau",
    "measure_steps",
    "plateau",
    "signal_energy",
    # laws
    "EscapeTime",
    "drive",
    "escape_time",
    "plan",
    "reduced_flow",
    # students
    "descend",
    "he_stack",
    "teacher",
]
