"""No file makes netvitals run code: nothing in the package reads a pickle from disk."""

import ast
from pathlib import Path

import pytest

import netvitals

PACKAGE = Path(netvitals.__file__).parent
WORDS = ("pickle", "load", "shelve", "marshal", "dill", "eval(", "exec(", "__import__")  # a file without is not parsed
MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


def breaches(source):
    """What in a source could run code out of a file: (line, why)."""
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            if name.partition(".")[0] in MODULES:
                yield node.lineno, f"imports {name}"
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        given = {k.arg: k.value for k in node.keywords}
        safe = given.get("weights_only")
        if called.endswith("torch.load") and not (isinstance(safe, ast.Constant) and safe.value is True):
            yield node.lineno, f"{called} without weights_only=True"
        allowed = given.get("allow_pickle")
        if allowed is not None and not (isinstance(allowed, ast.Constant) and allowed.value is False):
            yield node.lineno, f"{called} with allow_pickle"
        if called in ("pd.read_pickle", "pandas.read_pickle", "eval", "exec", "__import__"):
            yield node.lineno, called


@pytest.mark.parametrize(
    "source",
    ["import pickle", "from pickle import load", "import torch\ntorch.load(p)", "torch.load(p, weights_only=False)"]
    + ["torch.load(p, weights_only=flag)", "np.load(p, allow_pickle=True)", "import joblib", "import cloudpickle as c"]
    + ["pd.read_pickle(p)", "eval(text)"],
)
def test_each_way_to_run_code_out_of_a_file_is_noticed(source):
    assert list(breaches(source))


def test_nothing_in_the_package_reads_a_pickle():
    found = [
        f"{file.relative_to(PACKAGE)}:{line}: {why}"
        for file in sorted(PACKAGE.rglob("*.py"))
        for text in [file.read_text(encoding="utf-8")]
        if any(word in text for word in WORDS)
        for line, why in breaches(text)
    ]
    assert not found, found
