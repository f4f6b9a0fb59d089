"""The core needs neither the extras nor the lab; who asks for what they bring is told what to install."""

import ast
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

from forked import PRELOAD, Programs
from netvitals._extras import PARTS, missing

HOUSE = Path(__file__).parents[1]
PROJECT = tomllib.loads((HOUSE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CORE = {"torch", "numpy", "scipy", "polars", "typer", "rich", "jinja2", "networkx", "fsspec"}
OURS = CORE | {"netvitals", "markupsafe"}  # markupsafe is the part of jinja2 that escapes
ROOMS_WITH_EXTRAS = ("integrations", "report/live/server.py", "report/notebook.py", "cli/runs/view.py")

WITHOUT = """
import importlib.metadata, sys
for name in ("plotly", "sklearn", "starlette", "netvitals_lab"):
    sys.modules[name] = None          # as if it were not installed
importlib.metadata.entry_points = lambda **group: ()
"""

WATCHED = """
import torch
import netvitals as nv
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(32, 4), torch.randint(2, (32,))
with nv.watch(model, optimizer=optimizer, run="first", every=1) as vitals:
    for _ in range(4):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        vitals.step(loss)
assert [c.rule for c in vitals.findings().checked if c.series]
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """Runs code in a Python that has never had either of the two."""
    folder = tmp_path_factory.mktemp("without")
    (folder / "without_extras.py").write_text(WITHOUT)
    forks = Programs(preload=("without_extras", *PRELOAD))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)  # where the first process finds the module
        check = "import sys; sys.exit(not sys.modules['plotly'] is sys.modules['sklearn'] is None)"
        assert forks.run([sys.executable, "-c", check]).returncode == 0

    def run(code, cwd):
        command = [sys.executable, "-c", textwrap.dedent(code)]
        return forks.run(command, cwd=cwd, capture_output=True, text=True)

    yield run
    forks.close()


@pytest.fixture
def alone(python, tmp_path):
    """What such a Python prints."""

    def run(code):
        done = python(code, tmp_path)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    return run


def named(requirements: list[str]) -> set[str]:
    return {r.split(">")[0].split("[")[0] for r in requirements}


def test_watch_findings_report_page_and_checkup_do_without(alone):
    code = """
    run = nv.open_run("first")
    assert len(run.findings().checked) > 5
    page = nv.report.write(run, "report.html")
    assert "Gates" in page.read_text()
    found = nv.checkup(model, nn.functional.cross_entropy, (x, y))
    assert "Checkup of Sequential" in open(found.to_html("checkup.html")).read()
    plot = nv.report.Plot("x", "y", [nv.report.Series("a", [1, 2], [3, 4], line=True)])
    assert "<svg" in plot._repr_html_()
    """
    alone(WATCHED + textwrap.dedent(code))


def test_the_command_line_reports_a_run_without_them(alone):
    code = """
    from netvitals.cli import main
    try:
        main(["report", "first"])
    except SystemExit as end:
        assert not end.code
    """
    assert "report.html" in alone(WATCHED + textwrap.dedent(code))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("nv.report.figure([], 'gates', 'density@0.01')", ("plotly", "pip install 'netvitals[notebook]'")),
        (
            "from netvitals.report.live import server; server.create_app('.')",
            ("starlette", "pip install 'netvitals[serve]'"),
        ),
    ],
)
def test_who_asks_for_a_part_that_is_not_there_is_told_what_to_install(call, words, alone):
    code = f"""
    import netvitals as nv
    try:
        {call}
    except ImportError as error:
        print(error)
    """
    sentence = alone(code)
    assert all(word in sentence for word in words), sentence


def test_a_command_of_the_lab_says_how_to_install_it(python, tmp_path):
    done = python("from netvitals.cli import main; main(['reproduce', 'weight-drift'])", tmp_path)
    assert done.returncode == 2
    assert done.stderr == "netvitals: reproduce is a command of the papers' studies: pip install netvitals-lab\n"


def test_the_demo_needs_no_extra(alone):
    assert "report.html" in alone("from netvitals.cli import main; main(['demo', '--out', 'd'])")


def test_a_bare_import_error_of_a_command_becomes_the_sentence(python, tmp_path):
    code = """
    from netvitals.cli import app, main
    def bare():
        import plotly.express
    app.command("bare")(bare)
    main(["bare"])
    """
    done = python(code, tmp_path)
    assert done.returncode == 2
    assert done.stderr.strip().endswith(
        "needs plotly, which is not installed: pip install 'netvitals[notebook]' (netvitals explain missing-extra)"
    )


def test_the_core_is_small_and_every_extra_part_has_its_extra():
    assert named(PROJECT["dependencies"]) == CORE
    extras = {name: named(parts) for name, parts in PROJECT["optional-dependencies"].items()}
    for package, extra in PARTS.values():
        assert package in extras[extra]
    assert "netvitals[notebook]" in str(missing("x", "plotly")) and missing("x", "plotly").name == "plotly"


def test_no_file_of_the_core_imports_a_part_that_only_an_extra_brings():
    package = HOUSE / "src" / "netvitals"
    strangers = []
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            tops = {n.split(".")[0] for n in names} - sys.stdlib_module_names - OURS
            assert tops <= PARTS.keys(), (place, tops)
            if tops and not place.startswith(ROOMS_WITH_EXTRAS):
                strangers.append((place, *tops))
    assert strangers == []
