"""The benchmark's scripts are well-formed: facts, variants, and the third collection apart from the halves."""

from __future__ import annotations

import ast
import contextlib
import re
import sys
import types
import warnings
from collections import Counter

import pytest
import torch

from netvitals_lab.bugs import Case, cases
from netvitals_lab.bugs.causes import CAUSES_OF

EVERY = cases(collection=None)
THIRD = cases(collection="third")
CODE = re.compile(r"# (bug$|fix:)", re.MULTILINE)


def variants(case: Case) -> list[str]:
    return [case.variant(False), case.variant(True)] if case.kind == "bug" else [case.variant(False)]


def test_every_case_says_where_it_comes_from():
    for case in EVERY:
        assert case.title.endswith("."), case.name
        assert case.source and case.field, case.name
        assert "\nsource:" in case.text and f'"""{case.title}' in case.text, case.name


def test_names_and_sources_are_used_once():
    assert [name for name, n in Counter(case.name for case in EVERY).items() if n > 1] == []
    halves = {case.source for case in cases() if case.kind == "bug"}
    assert [case.name for case in THIRD if case.kind == "bug" and case.source in halves] == []


def test_bugs_differ_from_their_fix_and_healthy_scripts_have_none():
    for case in EVERY:
        if case.kind == "bug":
            broken, fixed = variants(case)
            assert broken != fixed, case.name
            assert not CODE.search(fixed), case.name  # every marked line is in one variant only
            assert case.causes, case.name
        else:
            assert not CODE.search(case.text) and not case.causes, case.name
            assert "\nunusual:" in case.text, case.name


def test_every_variant_is_a_script_with_its_own_loop():
    for case in EVERY:
        for text in variants(case):
            names = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
            assert {"score", "learned"} <= names, case.name
            assert "nv.watch(" in text and "watch.step(" in text, case.name
            assert "findings" not in text, case.name


def test_causes_of_the_third_collection_are_known_or_marked_as_new():
    known = {cause for causes in CAUSES_OF.values() for cause in causes}
    known |= {cause for case in cases() for cause in case.causes}
    for case in THIRD:
        line = next((line for line in case.text.splitlines() if line.startswith("cause:")), "cause:")
        new = {word.removesuffix("NEW").strip() for word in line[6:].split(",") if word.endswith("NEW")}
        assert set(case.causes) <= known | new, case.name


def test_the_third_collection_is_held_out_and_apart():
    kinds = Counter(case.kind for case in THIRD)
    assert kinds["bug"] >= 50 and kinds["healthy"] >= 30
    assert {case.half for case in THIRD} == {"published"}
    assert not any(case.collection == "third" for half in ("development", "published") for case in cases(half))
    assert len(EVERY) == len(cases()) + len(THIRD)
    assert all(len(case.text.splitlines()) <= 80 for case in THIRD)
    assert len({case.field for case in THIRD}) >= 40


class NoWatch(contextlib.AbstractContextManager):
    def __init__(self, *args, **kwargs):
        pass

    def __exit__(self, *error):
        return None

    def step(self, loss=None):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("case", THIRD, ids=lambda case: case.name)
def test_what_is_right_learns_without_a_watch(case, monkeypatch):
    bare = types.ModuleType("netvitals")
    bare.watch = NoWatch
    monkeypatch.setitem(sys.modules, "netvitals", bare)
    torch.manual_seed(0)
    names: dict = {"__name__": "__main__"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(case.variant(fixed=True), case.name, "exec"), names)
    assert names["learned"], names["score"]
