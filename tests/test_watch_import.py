"""`import netvitals` and the help of the command line load no torch, and `netvitals.watch` is the function."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import netvitals

PUBLIC = """
Checkup Finding Findings Forecast Lookahead Metric Preflight Run Vital Watch __version__ activations anatomy checkup
curvature drift gates integrations layers open_run optim preflight report saddle singular vitals watch
"""


def loaded_by(code):
    """Modules that a fresh Python has after ``code``."""
    command = [sys.executable, "-c", code + "; import sys; print(*sys.modules)"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_the_public_names_are_these():
    """A new name at the front is a decision: change the list above on purpose."""
    assert sorted(netvitals.__all__) == sorted(dir(netvitals)) == sorted(PUBLIC.split())
    assert all(getattr(netvitals, name) is not None for name in dir(netvitals))


def test_a_package_shows_thirty_names_at_most():
    """What stands in ``__all__`` is public and documented; what other packages need besides is imported, not listed."""
    package = Path(netvitals.__file__).parent
    shown = {
        init.parent.name: importlib.import_module(f"netvitals.{init.parent.name}")
        for init in package.glob("*/__init__.py")
    }
    counts = {name: len(getattr(module, "__all__", ())) for name, module in shown.items()}
    assert len(counts) > 15 and max(counts.values()) <= 30, counts


def test_an_unknown_name_gets_the_nearest_one():
    with pytest.raises(AttributeError, match="netvitals has no 'wach'; did you mean 'watch'"):
        netvitals.wach  # noqa: B018


def test_neither_import_nor_help_loads_torch():
    ours = {m for m in loaded_by("import netvitals") if m.startswith("netvitals")}
    assert ours == {"netvitals", "netvitals._version"}
    help_ = "import contextlib, io; from netvitals.cli import main\nwith contextlib.redirect_stdout(io.StringIO()):\n"
    for arguments in (["--help"], ["--version"]):
        loaded = loaded_by(f"{help_}  try: main({arguments})\n  except SystemExit: pass\n0")
        assert not {"torch", "numpy", "polars", "scipy"} & loaded


def test_what_watches_loads_no_heavy_library():
    new = loaded_by("import netvitals; netvitals.watch, netvitals.checkup")
    assert not {"polars", "plotly", "sklearn", "scipy.stats", "rich", "typer", "netvitals_lab", "netvitals.runs"} & new


def test_watch_is_the_function_however_it_is_imported():
    import netvitals.checkups
    import netvitals.watching.api

    assert netvitals.watch.__name__ == "watch" and netvitals.checkup.__name__ == "checkup"
    assert netvitals.open_run is netvitals.findings.open_run
