"""Importing netvitals costs little more than importing torch, and `netvitals.watch` is the function."""

import subprocess
import sys

CLOCK = ("import time; import torch; t = time.perf_counter(); import netvitals; d = time.perf_counter() - t; "
         "assert netvitals.__version__; print(d)")


def python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_import_costs_at_most_three_tenths_of_a_second():
    best = min(float(python(CLOCK)) for _ in range(4))
    assert best <= 0.3, f"{best:.3f} s after torch"


def test_heavy_rooms_are_loaded_when_used():
    loaded = python("import sys, netvitals; print([m for m in ('polars', 'plotly', 'sklearn', 'scipy.stats', 'rich', "
                    "'typer', 'netvitals.lab', 'netvitals.runs') if m in sys.modules])")
    assert loaded.strip() == "[]"


def test_watch_is_the_function_however_it_is_imported():
    python("import netvitals.watch, netvitals.checkup, netvitals as nv; "
           "assert callable(nv.watch) and callable(nv.checkup) and nv.watch.__name__ == 'watch'; "
           "from netvitals import Watch, Checkup, open_run; assert open_run.__module__.startswith('netvitals.runs')")


def test_every_room_is_reached_by_its_name():
    python("import netvitals as nv; assert nv.integrations.__name__ == 'netvitals.integrations' and nv.lab")
