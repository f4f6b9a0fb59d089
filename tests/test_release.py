"""What is handed to others: one version, a wheel and an sdist that carry everything and work where nothing of ours is.

Built without a network (hatchling is a part of ``[dev]``) and installed into an empty folder.
"""

import email
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from netvitals import __version__

HOUSE = Path(__file__).parents[1]
PACKAGE = HOUSE / "src" / "netvitals"
SEMANTIC = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?")


def python(*arguments: str, cwd: Path, path: Path | None = None) -> str:
    """What a fresh Python prints; the package is looked for in ``path`` only."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if path is not None:
        env["PYTHONPATH"] = str(path)
    done = subprocess.run([sys.executable, *arguments], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel and the sdist; the wheel is built from what the sdist holds."""
    pytest.importorskip("build", reason="build is not installed: pip install 'netvitals[dev]'")
    pytest.importorskip("hatchling", reason="hatchling is not installed: pip install 'netvitals[dev]'")
    out = tmp_path_factory.mktemp("dist")
    python("-m", "build", "--no-isolation", "--outdir", str(out), str(HOUSE), cwd=out)
    return {"wheel": next(out.glob("*.whl")), "sdist": next(out.glob("*.tar.gz"))}


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """A folder with the wheel in it and nothing else."""
    target = tmp_path_factory.mktemp("clean")
    pip = ("-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(target), str(built["wheel"]))
    python(*pip, cwd=target)
    return target


def test_the_version_stands_in_one_place_and_is_a_semantic_one():
    assert SEMANTIC.fullmatch(__version__), __version__
    project = tomllib.loads((HOUSE / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" not in project["project"] and project["project"]["dynamic"] == ["version"]
    assert (HOUSE / project["tool"]["hatch"]["version"]["path"]).samefile(PACKAGE / "_version.py")
    elsewhere = [
        path.relative_to(HOUSE).as_posix()
        for path in [*PACKAGE.rglob("*.py"), HOUSE / "pyproject.toml", HOUSE / "README.md", HOUSE / "CITATION.cff"]
        if f'"{__version__}"' in path.read_text(encoding="utf-8") and path.name != "_version.py"
    ]
    assert elsewhere == []


def test_the_changelog_begins_with_this_version():
    first = re.search(r"^## (\S+)", (HOUSE / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert first is not None and first[1] == __version__


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(built):
    mine = {
        path.relative_to(PACKAGE.parent).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(built["wheel"]) as wheel:
        names = {n for n in wheel.namelist() if ".dist-info/" not in n}
        about = email.message_from_string(wheel.read(f"netvitals-{__version__}.dist-info/METADATA").decode())
    assert names == mine
    for needed in ("py.typed", "report/app/main.js", "report/templates/page.html.j2"):
        assert f"netvitals/{needed}" in names
    assert about["Version"] == __version__ and "Typing :: Typed" in about.get_all("Classifier")


def test_the_sdist_holds_what_a_build_needs_and_no_tests_or_measurements(built):
    with tarfile.open(built["sdist"]) as sdist:
        tops = {Path(n).parts[1] for n in sdist.getnames() if len(Path(n).parts) > 1}
    assert {"src", "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE"} <= tops, tops
    assert not tops & {"tests", "bench", "docs", "runs", ".venv"}, tops


@pytest.mark.slow
def test_the_wheel_works_from_an_empty_folder(installed, tmp_path):
    """A watch, a run, findings and a report, with the files that came out of the wheel."""
    program = str(installed / "bin" / "netvitals")
    assert python(program, "--version", cwd=tmp_path, path=installed).strip() == f"netvitals {__version__}"
    seen = json.loads(python(program, "doctor", "--json", cwd=tmp_path, path=installed))
    assert Path(seen["folder"]).is_relative_to(installed), seen["folder"]
    assert seen["ok"] and seen["netvitals"] == __version__ and len(seen["checks"]) == 5, seen["checks"]


def test_both_distributions_have_one_version():
    lab = tomllib.loads((HOUSE / "lab" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert lab["version"] == __version__ and f"netvitals=={__version__}" in lab["dependencies"]
