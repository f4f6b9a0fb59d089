"""The one built file that we carry is the one that its package holds, where node can fetch it."""

import shutil
import subprocess
from pathlib import Path

import pytest

from netvitals.report.page_shell import APP, SCRIPTS, app_script

VENDORED = APP / "vendor" / "htm-preact.js"


def test_it_is_the_file_of_the_package(tmp_path):
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    done = subprocess.run(
        ["npm", "install", "--silent", "--no-audit", "--no-fund", "htm@3.1.1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    built = tmp_path / "node_modules" / "htm" / "preact" / "standalone.umd.js"
    if done.returncode or not built.exists():
        pytest.skip(f"npm could not fetch htm: {done.stderr[-200:]}")
    assert built.read_bytes() == VENDORED.read_bytes()


def test_every_script_is_in_the_page_once_and_none_is_forgotten():
    assert sorted(SCRIPTS) == sorted(p.relative_to(APP).as_posix() for p in APP.rglob("*.js"))
    assert all(app_script().count(Path(APP / name).read_text(encoding="utf-8")) == 1 for name in SCRIPTS)


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_can_be_parsed(name):
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    done = subprocess.run(["node", "--check", str(APP / name)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
