"""Every page is a typed model and a template: neither has a name that the other does not know."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from netvitals.capture import Measurement
from netvitals.report.dead_directions import Section, SectionsModel, page_of
from netvitals.report.page import ReportModel, report_model
from netvitals.report.page_shell import SUPPLIED, TEMPLATES, environment, render_html, write_html
from netvitals_lab.engine import page as claims

PAGES = [
    ("page.html.j2", TEMPLATES, ReportModel),
    ("sections.html.j2", TEMPLATES, SectionsModel),
    ("claims.html.j2", claims.TEMPLATES, claims.ClaimsModel),
]


def asked(template: str, folder: Path) -> set[str]:
    """Every name that a template and the shell it extends take from outside."""
    from jinja2 import meta

    templates = environment(folder)
    text = templates.loader.get_source(templates, template)[0]
    names: set[str] = set()
    for name in (template, "shell.html.j2") if "extends" in text else (template,):
        names |= meta.find_undeclared_variables(templates.parse(templates.loader.get_source(templates, name)[0]))
    return names


@pytest.mark.parametrize(("template", "folder", "model"), PAGES, ids=lambda p: getattr(p, "__name__", str(p)))
def test_a_template_knows_the_fields_of_its_model_and_nothing_else(template, folder, model):
    known = {f.name for f in fields(model)}
    used = asked(template, folder)
    assert used - SUPPLIED <= known, "names that the model does not have"
    assert known <= used, "fields that no page shows"


def test_a_model_is_frozen_and_built_from_measurements_alone():
    model = report_model([Measurement(i, "sparsity", "a", "hard", 0.95) for i in range(30)])
    head = model.head
    assert head["kind"] == "run" and [v["title"] for v in head["vitals"]] == ["Sparsity"] and head["loss"] is None
    assert (head["findings"][0]["vital"], head["findings"][0]["metric"]) == ("sparsity", "hard")
    assert head["vitals"][0]["tile"]["state"]["state"] == head["findings"][0]["severity"]
    with pytest.raises(FrozenInstanceError):
        model.title = "another"


def test_a_page_without_script_admits_none_and_escapes_what_is_not_markup():
    text = page_of("<i>", [Section("<b>", "a & b", "<script>alert(1)</script>")])
    assert "script-src" not in text and "<script" not in text
    assert "<h1>&lt;i&gt;</h1>" in text and "<h2>&lt;b&gt;</h2>" in text and "a &amp; b" in text


def test_an_unknown_name_in_a_template_is_an_error(tmp_path):
    from jinja2 import UndefinedError

    (tmp_path / "wrong.html.j2").write_text('{% extends "shell.html.j2" %}{% block main %}{{ absent }}{% endblock %}')
    with pytest.raises(UndefinedError, match="absent"):
        render_html("wrong.html.j2", SectionsModel("t", ()), folder=tmp_path)


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    assert write_html("first", tmp_path / "deep" / "a.html", "x.html").read_text() == "first"
    assert write_html("second", tmp_path / "deep", "a.html") == tmp_path / "deep" / "a.html"
    with pytest.raises(UnicodeEncodeError):
        write_html("\ud800", tmp_path / "deep" / "a.html", "x.html")
    assert (tmp_path / "deep" / "a.html").read_text() == "second"
