"""Importing netvitals costs little more than importing torch, and `netvitals.watch` is the function."""

import sys

import pytest

from forked import Programs

NEW = (
    "import sys, torch; before = set(sys.modules); import netvitals; assert netvitals.__version__; "
    "print(*sorted(set(sys.modules) - before))"
)


@pytest.fixture(scope="module")
def python():
    """What a Python prints that has imported torch and nothing of netvitals."""
    forks = Programs(preload=("torch",))

    def run(code):
        done = forks.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    yield run
    forks.close()


def test_after_torch_only_the_rooms_of_watching_are_imported(python):
    """Nothing of other projects, and few files of our own: the import costs what reading them costs."""
    new = python(NEW).split()
    rooms = {".".join(m.split(".")[:2]) for m in new}
    watching = ("_trouble", "_version", "activations", "anatomy", "capture", "checkup", "watch", "watching")
    assert rooms == {"netvitals", *(f"netvitals.{room}" for room in watching)}
    assert len(new) <= 100, new  # what watches a pass asks the anatomy what it is made of


def test_heavy_rooms_are_loaded_when_used(python):
    loaded = python(
        "import sys, netvitals; print([m for m in ('polars', 'plotly', 'sklearn', 'scipy.stats', 'rich', "
        "'typer', 'netvitals_lab', 'netvitals.runs') if m in sys.modules])"
    )
    assert loaded.strip() == "[]"


def test_watch_is_the_function_however_it_is_imported(python):
    python(
        "import netvitals.watch, netvitals.checkup, netvitals as nv; "
        "assert callable(nv.watch) and callable(nv.checkup) and nv.watch.__name__ == 'watch'; "
        "from netvitals import Watch, Checkup, open_run; assert open_run is nv.findings.open_run"
    )


def test_every_room_is_reached_by_its_name(python):
    python("import netvitals as nv; assert nv.integrations.__name__ == 'netvitals.integrations' and nv.lab")
