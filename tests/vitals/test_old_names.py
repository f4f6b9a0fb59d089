"""Names that have moved keep working for one version, with a sentence."""

import importlib
import pkgutil
import re
import warnings

import pytest

import netvitals
from netvitals import vitals
from netvitals._trouble import see

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
        DeprecationWarning, match=rf"netvitals.{module}.{name} is now netvitals\.\S+; the old name goes"
    ) as expected:
        found = getattr(room, name)
    new = re.search(r"is now (\S+);", str(expected[0].message)).group(1)
    home, _, attribute = new.rpartition(".")
    assert found is getattr(importlib.import_module(home), attribute)
    assert name not in vars(room)  # else the warning would come once and never again


def tables():
    """By module that has moved names: old name → new name."""
    for room in pkgutil.iter_modules(netvitals.__path__, "netvitals."):
        if room.ispkg and room.name not in ("netvitals_lab", "netvitals.cli"):
            for found in pkgutil.walk_packages(importlib.import_module(room.name).__path__, f"{room.name}."):
                yield importlib.import_module(found.name)
            yield importlib.import_module(room.name)


def test_every_name_that_moved_is_found_at_its_new_place():
    """All that any room lists, not only those above: a list must not name what is gone."""
    tried = 0
    for module in tables():
        for old, new in getattr(vars(module).get("__getattr__"), "names", {}).items():
            home, _, attribute = new.rpartition(".")
            with warnings.catch_warnings(record=True) as heard:
                warnings.simplefilter("always")
                found = getattr(module, old)
            sentences = [str(w.message) for w in heard if issubclass(w.category, DeprecationWarning)]
            told = f"{module.__name__}.{old} is now {new}; the old name goes with the next version {see('renamed')}"
            assert told in sentences
            assert found is getattr(importlib.import_module(home), attribute), (module.__name__, old)
            tried += 1
    assert tried > 150, tried


def test_a_name_that_never_was_is_refused():
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = vitals.nothing
