"""A trial's version follows the code that it reaches: what it computes counts, where and how it is written does not."""

from __future__ import annotations

import dataclasses
import importlib
import sys
import textwrap

import pytest

from netvitals_lab import Study
from netvitals_lab.engine.registry import all_studies
from netvitals_lab.engine.versions import code_version, forget, reached

TRIAL = """
    import math

    from planted.tools import Scaler, measured as taken
    from planted import limits


    def trial(config):
        '''One trial.'''
        if config["seed"] < 0:
            raise ValueError(f"a seed is not negative, got {config['seed']}")
        return [{"value": taken(config["seed"]) + Scaler().scale(limits.LARGE)}]


    def summary(rows):
        return {"n": len(rows)}
"""
TOOLS = """
    import functools
    import warnings

    import numpy as np

    from planted import limits
    from planted.bases import Base

    SMALL = 0.5
    TABLE = {}


    @functools.lru_cache(maxsize=4)
    def measured(seed, offset=1.0):
        if seed > 3:
            warnings.warn("a large seed", stacklevel=2)
        return helper(seed) * SMALL + offset


    def helper(seed):
        from math import sqrt
        return sqrt(seed) + float(np.mean([1.0, 2.0]))


    class Scaler(Base):
        factor = 2.0

        def scale(self, x):
            return self.factor * x

        def other(self, x):
            return x


    def unused(x):
        return x + 1
"""
BASES = """
    class Base:
        shift = 1
"""
LIMITS = "LARGE = 10\nUNUSED = 3\n"


@dataclasses.dataclass(frozen=True)
class Nothing:
    pass


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """A package of four modules; called with edits, it returns the version of the trial that they leave."""
    folder = tmp_path / "planted"
    folder.mkdir()
    start = {"__init__": "", "trials": TRIAL, "tools": TOOLS, "bases": BASES, "limits": LIMITS}
    monkeypatch.syspath_prepend(str(tmp_path))

    def version(edits=None, depends=()):
        for name in [n for n in sys.modules if n.partition(".")[0] == "planted"]:
            del sys.modules[name]
        for old in folder.iterdir():
            if old.suffix == ".py":
                old.unlink()
        for name, text in {**start, **(edits or {})}.items():
            if text is not None:
                (folder / f"{name}.py").write_text(textwrap.dedent(text), encoding="utf-8")
        importlib.invalidate_caches()
        forget()
        module = importlib.import_module("planted.trials")
        scales = dict.fromkeys(("smoke", "small", "paper"), Nothing())
        study = Study(
            name="planted",
            paper="x",
            title="x",
            scales=scales,
            trials=lambda p: [{"seed": 0}],
            trial=module.trial,
            summary=module.summary,
            depends=depends,
        )
        return code_version(study)

    yield version
    for name in [n for n in sys.modules if n.partition(".")[0] == "planted"]:
        del sys.modules[name]
    forget()


def swap(text, old, new):
    assert old in text, old
    return text.replace(old, new)


HELPER = """
    def helper(seed):
        from math import sqrt
        return sqrt(seed) + float(np.mean([1.0, 2.0]))
"""
ENTERED = """
    def entry(f):
        TABLE[f.__name__] = f
        return f


    @entry
    def rule(x):
        return x + {}
"""
SAME = {
    "a module renamed": {
        "tools": None,
        "instruments": TOOLS,
        "trials": swap(TRIAL, "planted.tools", "planted.instruments"),
    },
    "a function moved to another module": {
        "tools": swap(TOOLS, HELPER, "").replace("import Base", "import Base\n    from planted.more import helper"),
        "more": "    import math\n    import numpy\n" + swap(HELPER, "        from math import sqrt\n", "").replace(
            " sqrt", " math.sqrt").replace("np.", "numpy."),
    },
    "another alias": {"trials": swap(TRIAL, "measured as taken", "measured").replace("taken(", "measured(")},
    "a module instead of its names": {
        "trials": swap(TRIAL, "from planted.tools import Scaler, measured as taken", "import planted.tools as t")
        .replace("taken(", "t.measured(")
        .replace("Scaler()", "t.Scaler()")
    },
    "names through a front door": {
        "__init__": "from planted.tools import Scaler, measured\n",
        "trials": swap(TRIAL, "from planted.tools import", "from planted import"),
    },
    "imports in another order": {
        "trials": swap(TRIAL, "    from planted import limits\n", "").replace(
            "import math", "from planted import limits")
    },
    "an alias of a foreign module": {"tools": swap(TOOLS, "numpy as np", "numpy").replace("np.mean", "numpy.mean")},
    "other layout": {
        "tools": swap(TOOLS, "helper(seed) * SMALL + offset", "(helper(seed) * SMALL  # so\n            + offset)")
    },
    "another docstring": {"trials": swap(TRIAL, "One trial.", "One trial, described at more length.")},
    "a docstring where there was none": {
        "tools": swap(TOOLS, "def helper(seed):\n", "def helper(seed):\n        '''Root.'''\n")
    },
    "another error sentence": {"trials": swap(TRIAL, "a seed is not negative, got", "seeds begin at zero; this is")},
    "another warning": {"tools": swap(TOOLS, '"a large seed"', 'f"{seed} is large"')},
    "annotations": {"tools": swap(TOOLS, "def helper(seed):", "def helper(seed: int) -> float:")},
    "another summary": {"trials": swap(TRIAL, "len(rows)", "2 * len(rows)")},
    "a function nobody calls": {"tools": swap(TOOLS, "x + 1", "x + 2")},
    "a constant nobody reads": {"limits": swap(LIMITS, "UNUSED = 3", "UNUSED = 4")},
    "a script's own lines": {"tools": TOOLS + "\n    if __name__ == '__main__':\n        print(unused(1))\n"},
}  # fmt: skip
DIFFERENT = {
    "a constant": {"limits": swap(LIMITS, "LARGE = 10", "LARGE = 11")},
    "a constant in place": {"tools": swap(TOOLS, "[1.0, 2.0]", "[1.0, 3.0]")},
    "the kind of a number": {"limits": swap(LIMITS, "LARGE = 10", "LARGE = 10.0")},
    "an operator": {"tools": swap(TOOLS, "* SMALL +", "* SMALL -")},
    "a default argument": {"tools": swap(TOOLS, "offset=1.0", "offset=2.0")},
    "a callee's body": {"tools": swap(TOOLS, "return sqrt(seed)", "return sqrt(seed + 1)")},
    "another callee": {"tools": swap(TOOLS, "from math import sqrt", "from cmath import sqrt")},
    "a decorator": {"tools": swap(TOOLS, "    @functools.lru_cache(maxsize=4)\n", "")},
    "a decorator's argument": {"tools": swap(TOOLS, "maxsize=4", "maxsize=5")},
    "a base class": {"tools": swap(TOOLS, "Scaler(Base)", "Scaler")},
    "the body of a base class": {"bases": swap(BASES, "shift = 1", "shift = 2")},
    "a class attribute": {"tools": swap(TOOLS, "factor = 2.0", "factor = 3.0")},
    "a method that is not called here": {"tools": swap(TOOLS, " return x\n\n\n", " return -x\n\n\n")},
    "what is tested before an error": {"trials": swap(TRIAL, '["seed"] < 0', '["seed"] <= 0')},
    "the kind of an error": {"trials": swap(TRIAL, "raise ValueError", "raise RuntimeError")},
    "a text that is no sentence": {"trials": swap(TRIAL, '{"value":', '{"other":')},
    "a line at import": {"tools": TOOLS + "\n    np.random.seed(1)\n"},
    "an entry in a table": {
        "tools": swap(TOOLS, "offset\n", "offset + len(TABLE)\n") + "\n    TABLE['a'] = 1\n",
    },
}  # fmt: skip


@pytest.mark.parametrize("edit", SAME)
def test_what_computes_the_same_keeps_its_version(planted, edit):
    assert planted(SAME[edit]) == planted()


@pytest.mark.parametrize("edit", DIFFERENT)
def test_what_may_compute_something_else_gets_another_version(planted, edit):
    assert planted(DIFFERENT[edit]) != planted()


def test_a_table_that_other_lines_fill_is_read_with_them(planted):
    reads = swap(TOOLS, "offset\n", "offset + len(TABLE)\n")
    one, two = (planted({"tools": reads + f"\n    TABLE['a'] = {n}\n"}) for n in (1, 2))
    assert one != two


def test_what_a_decorator_of_ours_enters_into_a_table_counts(planted):
    reads = swap(TOOLS, "offset\n", "offset + len(TABLE)\n")
    assert planted({"tools": reads + ENTERED.format(1)}) != planted({"tools": reads + ENTERED.format(2)})


def test_a_local_name_is_not_the_global_one(planted):
    hidden = {
        "tools": swap(TOOLS, "def helper(seed):\n", "def helper(seed):\n        unused = seed\n        seed = unused\n")
    }
    changed = {"tools": swap(hidden["tools"], "x + 1", "x + 2")}
    assert planted(hidden) == planted(changed)


def test_a_module_handed_on_counts_whole(planted):
    whole = swap(TRIAL, "limits.LARGE)", "getattr(limits, 'LAR' + 'GE'))")
    before = planted({"trials": whole})
    assert planted({"trials": whole, "limits": "LARGE = 10\nUNUSED = 4\n"}) != before


def test_only_the_modules_a_study_names_decide(planted):
    fenced = ("planted.tools",)
    before = planted(depends=fenced)
    assert planted(DIFFERENT["a constant"], fenced) == before
    assert planted(DIFFERENT["an operator"], fenced) != before
    with pytest.raises(ValueError, match=r"depends on planted\.nowhere, and there is no such module"):
        planted(depends=("planted.nowhere",))


@pytest.mark.slow
def test_every_study_here_reaches_code_outside_its_folder_and_none_of_the_machinery():
    for study in all_studies():
        modules = {place.module for place in reached(study)}
        assert study.trial.__module__ in modules
        assert not any(m.startswith("netvitals_lab.engine") for m in modules), study.name
        assert len(code_version(study)) == 16
    names = {str(p) for s in all_studies() if s.name == "weight-drift-theorems" for p in reached(s)}
    assert any(n.startswith("netvitals.drift.") for n in names) and any(
        n.startswith("netvitals_lab.models.") for n in names
    )
