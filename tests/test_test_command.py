"""The test command ends: when a worker dies, when a test hangs; and its order can be shuffled."""

import shutil
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[1]


@pytest.fixture
def suite(tmp_path, programs):
    """A folder with our way of running tests; call it with a file's text and options."""
    shutil.copy(HOUSE / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -q -p no:cacheprovider\n")
    for number in range(4):
        (tmp_path / f"test_calm_{number}.py").write_text("".join(f"def test_{i}(): pass\n" for i in range(3)))

    def run(text, *options):
        (tmp_path / "test_a_planted_one.py").write_text(text)
        return programs.run(
            [sys.executable, "-m", "pytest", *options], cwd=tmp_path, capture_output=True, text=True, timeout=300
        )

    return run


@pytest.mark.slow
def test_a_dead_worker_fails_the_run_at_once_by_name(suite):
    done = suite(
        "import os\ndef test_calm(): pass\ndef test_aborts(): os.abort()\ndef test_after(): pass\n",
        "-n",
        "2",
        "--dist",
        "loadfile",
    )
    assert done.returncode not in (0, 5)
    shown = done.stdout + done.stderr  # the stack of a fatal error names the test as well
    assert "test_a_planted_one.py" in shown and "test_aborts" in shown and " died" in done.stdout
    assert "crashed while running" in done.stdout or "while running: " in done.stdout


@pytest.mark.slow
def test_a_hanging_test_fails_and_the_others_run(suite):
    done = suite("import time\ndef test_hangs(): time.sleep(100)\n", "-n", "2", "--dist", "loadfile", "--timeout", "2")
    assert done.returncode == 1 and "12 passed" in done.stdout and "Timeout" in done.stdout


@pytest.mark.slow
def test_the_order_is_shuffled_by_a_seed_and_files_stay_whole(suite):
    def order(*options):
        lines = suite("def test_0(): pass\n", "--collect-only", *options).stdout.splitlines()
        return [line for line in lines if "::" in line]

    plain, one, again, two = order(), order("--shuffle", "1"), order("--shuffle", "1"), order("--shuffle", "2")
    assert sorted(plain) == sorted(one) and one == again and len({tuple(o) for o in (plain, one, two)}) == 3
    files = [line.split("::")[0] for line in one]
    assert sum(a != b for a, b in pairwise(files)) == 4


def test_every_test_has_a_time_limit_and_the_whole_run_has_none():
    options = tomllib.loads((HOUSE / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    assert options["timeout"] > 0
    assert "timeout " not in (HOUSE / "Makefile").read_text(encoding="utf-8")
