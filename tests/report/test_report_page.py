"""The page holds every number that was recorded, needs no network, and lets no module name out of its place."""

from __future__ import annotations

import base64
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import netvitals as nv
from netvitals import report
from netvitals.capture import ArrayMeasurement, Measurement
from netvitals.findings import diagnose
from netvitals.report.arrays import CURVE, GRID, drawn
from netvitals.runs import Finding


class Page(HTMLParser):
    """Tags, attributes and the text of scripts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)

    def all(self, tag: str, **attributes: str) -> list[dict[str, str | None]]:
        wanted = {k.replace("_", "-"): v for k, v in attributes.items()}
        return [a for t, a in self.tags if t == tag and all(a.get(k) == v for k, v in wanted.items())]


def data_of(text: str) -> dict:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert found is not None
    return json.loads(found.group(1))


def unpacked(text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), "<f4")


@pytest.fixture(scope="module")
def page(run):
    return report.render(run)


def metrics_of(text: str) -> list[dict]:
    return [value for key, value in data_of(text).items() if key.startswith("metric?")]


def numbers_of(metric: dict, part: str = "mean") -> np.ndarray:
    return unpacked(metric[part]).reshape(len(metric["sites"]), len(metric["steps"]))


def test_every_recorded_number_is_in_the_page(run, page):
    shown = {
        (m["vital"], site, m["metric"], step): value
        for m in metrics_of(page)
        for site, row in zip(m["sites"], numbers_of(m))
        for step, value in zip(m["steps"], row)
    }
    missing = [
        (step, vital, site, metric, value)
        for step, vital, site, metric, value in run.frame().iter_rows()
        if not np.isclose(shown[(vital, site, metric, step)], value, rtol=1e-6, equal_nan=True)
    ]
    assert missing == []


def test_every_metric_and_site_is_in_the_text_that_needs_no_script(run, page):
    texts = {t.strip().removesuffix(" (array)") for t in Page(page).texts}
    frame = run.frame()
    frame = frame.filter(frame["vital"] != "loss")
    assert set(frame["metric"]) | {a.metric for a in run.arrays()} <= texts
    assert set(frame["site"]) <= texts


def test_the_page_needs_no_network(page):
    parsed = Page(page)
    assert not [a for _, a in parsed.tags if "src" in a]
    assert all((a.get("href") or "#").startswith("#") for _, a in parsed.tags)
    rest = re.sub(r"http://www\.w3\.org/[\w/]+", "", page)  # names of kinds of elements, which nobody loads
    assert "http://" not in rest and "https://" not in rest and "@import" not in page and "url(" not in page
    policy = parsed.all("meta", http_equiv="Content-Security-Policy")[0]["content"] or ""
    assert policy.startswith("default-src 'none'")


def test_the_policy_admits_the_script_of_the_page_and_no_other(page):
    import hashlib

    script = re.findall(r"<script>(.*?)</script>", page, re.S)
    assert len(script) == 1
    digest = base64.b64encode(hashlib.sha256(script[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page


def test_words_come_first_then_findings_then_numbers(page):
    marks = ('class="words"', 'id="findings"', "<table>", 'id="about"', 'id="data"')
    order = [page.index(mark) for mark in marks]
    assert order == sorted(order)
    assert re.search(r">steps\s*<b>40</b>", page)
    assert re.search(r"The run finished after step 39; the loss fell from [\d.]+ to [\d.]+\.", page)


def test_names_of_modules_are_escaped_everywhere(nasty_run, nasty):
    text = report.render(nasty_run, title=nasty[0])
    parsed = Page(text)
    assert len(parsed.all("script")) == 2
    assert parsed.all("img") == []
    assert not [a for _, a in parsed.tags if any(k.startswith("on") for k in a)]
    assert "{{ 7*7 }}" in "".join(parsed.texts)  # shown as it is, not evaluated
    assert any(nasty[0] in m["sites"] for m in metrics_of(text))


def test_a_finding_names_the_metric_that_shows_it(nasty_run):
    found = diagnose(nasty_run)
    head = data_of(report.render(nasty_run))["head"]
    assert found and [f["what"] for f in head["findings"]] == [f.what for f in found]
    known = {(v["vital"], m["name"]) for v in head["vitals"] for m in v["metrics"]}
    assert all((f["vital"], f["metric"]) in known for f in head["findings"])
    assert head["findings"][0]["metric"] == "hard"


def test_metadata_and_skipped_places_are_told(run, page):
    assert "SGD" in page and run.meta["torch"] in page
    assert "Nothing was skipped" in page or "could not be measured" in page


def test_a_calm_run_says_so_and_lists_what_was_checked():
    measurements = [Measurement(i, "sparsity", "a", "hard", 0.4) for i in range(30)]
    text = report.render(measurements)
    assert "Is activation sparsity below the level that costs accuracy?" in text
    assert re.search(r"No problem found, but only \d of \d+ checks could run", text), (
        "silence for want of measurements is not health"
    )


def test_a_checkup_is_a_page_too(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
    batch = torch.randn(32, 4), torch.randint(2, (32,))
    path = nv.checkup(model, nn.functional.cross_entropy, batch, curvature=False).to_html(tmp_path / "checkup.html")
    text = Path(path).read_text(encoding="utf-8")
    assert "Checkup of Sequential" in text and "One checkpoint was measured" in text
    assert {m["metric"] for m in metrics_of(text)} >= {"density@0.01", "hard", "grad_norm"}


def test_long_runs_are_thinned_and_say_so():
    measurements = [
        Measurement(i, "sparsity", f"layer{k}", "hard", 0.4 + 0.1 * (i % 2)) for i in range(2000) for k in range(3)
    ]
    text = report.render(measurements)
    metric = next(m for m in metrics_of(text) if m["vital"] == "sparsity")
    assert 200 <= len(metric["steps"]) <= 300 and metric["steps"][0] == 7 and metric["steps"][-1] == 1999
    assert numbers_of(metric)[0] == pytest.approx(0.45, abs=0.02)
    assert unpacked(metric["low"]).min() == pytest.approx(0.4) and unpacked(metric["high"]).max() == pytest.approx(0.5)
    assert "a column of a picture is the mean of up to 8 steps" in text


def test_big_models_stay_small_pages():
    measurements = [
        Measurement(i, "gates", f"layer{k}", f"m{j}", 0.5) for i in range(100) for k in range(200) for j in range(5)
    ]
    assert len(report.render(measurements)) < 4_000_000


def test_missing_measurements_are_gaps_and_infinities_stay():
    text = report.render(
        [
            Measurement(0, "v", "a", "m", 1.0),
            Measurement(2, "v", "a", "m", float("inf")),
            Measurement(1, "v", "b", "m", 5.0),
        ]
    )
    (metric,) = metrics_of(text)
    assert metric["sites"] == ["a", "b"]
    np.testing.assert_array_equal(numbers_of(metric), [[1, np.nan, np.inf], [np.nan, 5, np.nan]])


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((5,), (1, 5)),
        ((5000,), (1, CURVE)),
        ((3, 4), (3, 4)),
        ((200, 70), (GRID, GRID)),
        ((2, 3, 4), (2, 12)),
        ((), (1, 1)),
    ],
)
def test_arrays_are_drawn_at_a_bounded_size(shape, expected):
    values = np.arange(np.prod(shape, dtype=int), dtype=float).reshape(shape)
    out = drawn(ArrayMeasurement(0, "v", "s", "m", values))
    assert tuple(out["shape"]) == expected
    assert unpacked(out["data"]).mean() == pytest.approx(values.mean(), rel=0.02, abs=1e-6)


def test_an_empty_source_is_still_a_page():
    assert "Nothing was recorded" in report.render([])


def test_writing_replaces_only_when_whole_and_takes_a_folder(run, tmp_path, monkeypatch):
    assert report.write(run, tmp_path).name == "report.html"
    before = (tmp_path / "report.html").read_text()
    monkeypatch.setattr("netvitals.report.live.api.head", lambda *a, **k: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        report.write(run, tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text() == before
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_given_findings_are_shown_instead_of_fresh_ones(run):
    from netvitals.findings import Findings

    text = report.render(run, findings=Findings((Finding("critical", "x", "The sky is falling."),)))
    assert "The sky is falling." in text and "1 critical" in text
