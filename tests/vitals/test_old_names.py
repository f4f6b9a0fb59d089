"""Names that have moved keep working for one version, with a sentence."""

import importlib
import re

import pytest

from netvitals import vitals

OLD = {
    "vitals": "dial suppression drift_theory gate_forecast gate_trends",
    "vitals.gates": "measure predict margins density PREDICTORS GateReport",
    "vitals.drift": "euler weight_drift gradient_signs covariance_split Euler",
    "vitals.sparsity": "measure tensor_sparsity SparsityReport",
    "vitals.spikes": "measure spikes amplification intermediate_peak",
    "vitals.rank": "effective_rank",
    "vitals.stream": "profile",
    "vitals.gradients": "update",
    "vitals.imbalance": "measure imbalances",
    "vitals.preactivations": "moments",
    "vitals.gauge_charges": "position energy GaugeDrift",
    "singular": "KFACFloor Orders StreamFloor",
    "saddle": "PlateauForecast StepAccounting",
    "curvature": "Monitor Jump",
}


@pytest.mark.parametrize(("module", "name"), [(m, n) for m, names in OLD.items() for n in names.split()])
def test_an_old_name_works_for_one_version_and_says_where_it_went(module, name):
    room = importlib.import_module(f"netvitals.{module}")
    with pytest.warns(
        FutureWarning, match=rf"netvitals.{module}.{name} is now netvitals\.\S+; the old name goes"
    ) as expected:
        found = getattr(room, name)
    new = re.search(r"is now (\S+);", str(expected[0].message)).group(1)
    home, _, attribute = new.rpartition(".")
    assert found is getattr(importlib.import_module(home), attribute)
    assert name not in vars(room)  # else the warning would come once and never again


def test_a_name_that_never_was_is_refused():
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = vitals.nothing
