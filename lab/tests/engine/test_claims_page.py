"""Claims, verdicts, where they stand, and the page that shows them."""

import re
import shutil
import subprocess

import pytest

import netvitals_lab as lab
from netvitals_lab import Claim, Expected, Plot, Results, Series, Standing, Verdict, render_page, standings


def claim(name="toy/C1", **more):
    more = {"whose": "paper", "place": "§1"} | more
    return Claim(name, "activations", "a < b & c", Expected(0.5, tolerance=0.1), lambda rows: lab.holds(), **more)


def test_expected_is_a_number_or_a_direction_and_not_both():
    assert str(Expected(0.5, tolerance=0.1)) == "0.5 ± 0.1"
    for wrong in ({}, {"value": 1.0, "direction": "up"}):
        with pytest.raises(ValueError, match="give a number with a tolerance, or a direction"):
            Expected(**wrong)


def test_an_expected_number_decides_by_its_tolerance():
    assert Expected(0.5, tolerance=0.1).admits(0.59) and not Expected(0.5, tolerance=0.1).admits(0.61)
    assert Expected(float("-inf"), tolerance=0.1).admits(float("-inf"))
    for expected, measured in ((Expected(direction="up"), 1.0), (Expected(0.5), 0.5), (lab.at_most(1), "two")):
        with pytest.raises(ValueError, match="say ok="):
            expected.admits(measured)


def test_a_verdict_never_rests_on_nan_nor_on_an_unknown_word():
    with pytest.raises(ValueError, match="measured = NaN"):
        lab.holds(float("nan"))
    with pytest.raises(ValueError, match="one of holds, reproduced, fails, erratum, not-reproduced, under"):
        Verdict("maybe")


def test_a_verdict_reads_as_a_sentence():
    verdict = Verdict("holds", 0.123456789, 0.01, "as said", seeds=3, scale="small", trials=3, excluded=(("a", "b"),))
    assert str(verdict) == "holds: 0.123457 ± 0.01; as said; 3 trials, 3 seeds, small; 1 excluded"
    assert Verdict.from_dict(verdict.to_dict()) == verdict


def test_a_claims_id_names_its_paper():
    assert claim("gate-density/C4").paper == "gate-density"
    assert claim("activations/x", paper="saddle-escape").paper == "saddle-escape"
    with pytest.raises(ValueError, match="paper/name"):
        claim("C4")


def test_a_claim_stands_by_the_largest_scale_that_gave_a_verdict(tmp_path):
    code = lab.code_version(lab.find_study("activations"))
    with Results(tmp_path / "s.sqlite") as results:
        results.save_verdicts({"toy/C1": Verdict("fails", 1.0, scale="smoke")}, "smoke", code)
        results.save_verdicts({"toy/C1": Verdict("holds", 2.0, scale="small")}, "small", code)
        results.save_verdicts({"toy/C1": Verdict("not-run", note="needs data", scale="paper")}, "paper", code)
        results.save_verdicts({"toy/C2": Verdict("holds", 2.0, scale="small")}, "small", "an older version")
        first, second, third = standings([claim(), claim("toy/C2"), claim("toy/C3")], results)
    assert (first.verdict.status, first.verdict.scale, first.stale) == ("holds", "small", False)
    assert second.stale
    assert (third.verdict.status, third.verdict.note) == ("not-run", "not run yet: netvitals reproduce --claim toy/C3")


def page_of(*verdicts):
    return render_page([Standing(claim(f"toy/C{i}"), v) for i, v in enumerate(verdicts)])


@pytest.mark.parametrize(
    ("status", "without", "given"),
    [
        ("erratum", "the corrected statement", {"correction": "it is twice that"}),
        ("not-reproduced", "power", {"power": 0.1}),
        ("underspecified", "span", {"span": (0.1, 0.9)}),
        ("not-judged", "says why", {"note": "two seeds"}),
        ("not-run", "says why", {"note": "needs data"}),
    ],
)
def test_a_verdict_brings_what_it_cannot_do_without(status, without, given):
    with pytest.raises(ValueError, match=without):
        Verdict(status, 1.0)
    assert Verdict(status, 1.0, **given).status == status


def test_verdicts_are_worded():
    words = [
        str(lab.not_reproduced(0.02, 0.1, note="loss saved")),
        str(lab.underspecified((0.0, 0.97), note="IoU by kernel")),
        str(lab.not_judged("two seeds")),
        str(lab.erratum(0.3, note="the sign", correction="it falls")),
    ]
    assert words == [
        "not reproduced at this scale: 0.02; loss saved; an effect of 0.1 would have been seen",
        "underspecified; IoU by kernel; from 0 to 0.97 over the set-ups",
        "cannot be judged; two seeds",
        "erratum: 0.3; the sign; right is: it falls",
    ]


ALL = (
    Verdict("holds", 0.52, 0.01),
    Verdict("reproduced", 0.53),
    Verdict("fails", 0.9),
    Verdict("erratum", note="the sign"),
    Verdict("not-reproduced", 0.1, power=0.3),
    Verdict("underspecified", span=(0.0, 1.0)),
    Verdict("not-judged", note="two seeds"),
    Verdict("not-run", note="needs data"),
)


def test_the_page_has_a_row_per_claim_with_colour_word_and_both_numbers():
    page = page_of(*ALL)
    assert re.findall(r'<tr class="(\w+)" data-paper="toy" data-status="([\w-]+)"', page) == [
        ("good", "holds"),
        ("good", "reproduced"),
        ("critical", "fails"),
        ("warning", "erratum"),
        ("note", "not-reproduced"),
        ("note", "underspecified"),
        ("info", "not-judged"),
        ("info", "not-run"),
    ]
    assert "0.5 ± 0.1" in page and "0.52 ± 0.01" in page
    assert (
        "8 statements of the paper, 6 of them judged: 1 holds, 1 reproduced at this scale, 1 fails, 1 erratum, "
        "1 not reproduced at this scale, 1 underspecified, 1 cannot be judged, 1 not run."
    ) in page


def test_one_paper_alone_is_a_referees_report_with_command_cost_choices_and_questions():
    verdict = Verdict("underspecified", span=(0.0, 1.0), trials=3, cost=200.0, scale="small", commit="abc")
    asked = claim("toy/C1", choices=("zero padding",), question="Which kernel?", effect="IoU at 40")
    mine = Standing(claim("toy/C2", whose="ours"), Verdict("holds", 1.0))
    page = render_page([mine, Standing(asked, verdict)])
    headings = re.findall(r'scope="rowgroup"><span class="id">toy</span> ([\w ]+?) <span', page)
    assert headings == ["What the text leaves open", "Statements of ours on its subject"]
    for text in (
        "netvitals reproduce --claim toy/C1",
        "about 3 min of one core",
        "rests on: zero padding",
        "Which kernel?",
        "measured: IoU at 40",
        "commit abc",
        ">ours<",
    ):
        assert text in page, text
    both = render_page([mine, Standing(claim("tiny/C1"), Verdict("holds", 1.0))])
    assert "What the papers claim" in both and "2 statements" not in both


def test_the_headline_claims_are_open_and_the_others_folded():
    many = [Standing(claim(f"toy/C{i}"), Verdict("holds" if i else "fails", 0.5)) for i in range(12)]
    first = Standing(claim("toy/H", headline="two small networks"), Verdict("holds", 0.5))
    page = render_page([*many, first])
    assert page.count('<tr class="group">') == 3 and page.count('<tbody class="folded">') == 2
    assert page.index("toy/H") < page.index("toy/C0") and "set-up: two small networks" in page
    assert "11 holds" in page and "show 11 claims" in page
    assert 'class="folded"' not in page_of(Verdict("holds", 0.5))


def test_a_long_note_is_folded_behind_its_beginning():
    note = "; ".join(["mean over seeds", *(f"activation {i} at θ = .10 {i / 7:.3f}" for i in range(40))])
    page = page_of(Verdict("holds", 0.5, note=note))
    shown, folded = page.split("<summary>more numbers</summary>")
    assert "activation 0" in shown and "activation 39" not in shown and "activation 39" in folded
    assert "more numbers" not in page_of(Verdict("holds", 0.5, note="mean over seeds"))


def test_the_page_escapes_and_needs_no_network():
    page = page_of(Verdict("holds", note="<script>alert(1)</script>", excluded=(("<b>", "why"),), trials=1))
    assert "<script>alert" not in page and "a &lt; b &amp; c" in page
    assert not re.search(r'(src|href)="http', page)
    assert "default-src 'none'" in page


def test_excluded_trials_and_stale_code_are_shown():
    standing = Standing(
        claim(), Verdict("holds", 1.0, trials=2, scale="small", excluded=(("seed=1", "it diverged"),)), stale=True
    )
    page = render_page([standing])
    assert "seed=1: it diverged" in page and ">stale<" in page


def test_a_plot_draws_every_finite_point_inside_its_frame():
    plot = Plot(
        "x",
        "y",
        [
            Series("points", [1, 10, 100, 0], [0.1, 1, float("nan"), 3], [0.01, 0.2, 0, 0]),
            Series("line", [1, 100], [0.1, 10], line=True, dashed=True),
        ],
        log_x=True,
        log_y=True,
    )
    svg = plot.svg()
    places = [(float(x), float(y)) for x, y in re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', svg)]
    assert len(places) == 2  # a NaN and a zero on a logarithmic axis are left out
    assert all(62 <= x <= 546 and 12 <= y <= 258 for x, y in places)
    assert places[0][0] < places[1][0] and places[0][1] > places[1][1]
    assert "dashed" in svg and plot.legend == [(0, "points"), (1, "line")]
    with pytest.raises(ValueError, match="same length"):
        Series("bad", [1], [1, 2])


@pytest.mark.skipif(shutil.which("chromium") is None, reason="there is no chromium")
def test_the_filters_work_in_a_browser(tmp_path):
    file = tmp_path / "claims.html"
    file.write_text(page_of(Verdict("holds", 0.5), Verdict("fails", 0.9), Verdict("fails", 0.8)))
    dom = subprocess.run(
        [
            "chromium",
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--dump-dom",
            f"{file.as_uri()}#status=fails&find=C2",
        ],
        capture_output=True,
        text=True,
        timeout=180,
        check=True,
    ).stdout
    assert re.findall(r'<tr class="\w+" data-paper="toy" data-status="([\w-]+)"( hidden="")?', dom) == [
        ("holds", ' hidden=""'),
        ("fails", ' hidden=""'),
        ("fails", ""),
    ]
    assert "1 shown" in dom


def test_the_record_is_a_report_with_one_line_a_claim(tmp_path):
    held = Standing(claim("toy/C1"), Verdict("holds", 0.51, note="a|b\nand *so* on", seeds=3, scale="small", trials=4))
    stale = Standing(claim("toy/C2"), Verdict("fails", 0.9, scale="smoke", trials=1), stale=True)
    ours = Standing(claim("toy/C3", whose="ours", question="Why?"), lab.not_reproduced(0.1, 0.2, trials=5))
    other = Standing(claim("tiny/C1"), lab.not_run("needs data"))
    first, second = lab.write_record([held, stale, ours, other], tmp_path / "record")
    assert (first.name, second.name) == ("tiny.md", "toy.md")
    text = second.read_text()
    assert "2 statements of the paper, 2 of them judged: 1 holds, 1 fails; 1 ours: 1 not reproduced at" in text
    assert re.findall(r"^## (.*)", text, re.M) == [
        "Every claim",
        "What we would ask the authors",
        "Set-ups, and what more would cost",
    ]
    folds = ["What holds: 1", "What fails: 1", "Statements of ours on its subject: 1"]
    assert re.findall(r"<summary>([\w ]+: \d)</summary>", text) == folds and text.count("</details>") == 4
    assert "### activations" in text and "- `small`: theta = 0.1" in text
    assert "- `medium`: as small: roots of" in text
    rows = [re.sub(r", commit \w+\+?", "", line) for line in text.splitlines() if line.startswith("| C")]
    assert rows[0] == (
        r"| C1 | a \< b & c (§1) | 0.5 ± 0.1 | 0.51 — a\|b and \*so\* on | 4 trials, 3 seeds, scale small, under 1 s. "
        "Set-up: [activations](#activations). `netvitals reproduce --claim toy/C1` |"
    )
    again = "Set-up: [activations](#activations). `netvitals reproduce --claim toy/C2` |"
    assert rows[1].endswith(f"| 0.9 | code has changed since, 1 trial, scale smoke, under 1 s. {again}")
    assert "an effect of 0.2 would have been seen | not reproduced at this scale |" in rows[2]
    assert f"| needs data | {again.replace('toy/C2', 'tiny/C1')}" in first.read_text()
    with pytest.raises(ValueError, match=r"toy\.md is a file"):
        lab.write_record([held], second)


def test_what_is_recorded_loads_again_with_its_commit(tmp_path, monkeypatch):
    from netvitals_lab.engine import status

    kept = lab.underspecified((0.0, 1.0), 0.5, note="by kernel", facts={"a": 1.5}, trials=3, scale="small", cost=123.0)
    wrong = lab.erratum(0.0, note="the sign", correction="it falls", trials=1, cost=2.0)
    shipped = tmp_path / "shipped"
    shipped.mkdir()
    lab.write_record([Standing(claim("toy/C1"), kept), Standing(claim("toy/C2"), wrong)], tmp_path, ship=shipped)
    assert [f.name for f in tmp_path.glob("*.*")] == ["toy.md"]
    monkeypatch.setattr(status, "RECORDED", shipped)
    again = status.recorded_verdicts.__wrapped__()
    first, second = again["toy/C1"], again["toy/C2"]
    assert (first.status, first.span, first.measured, first.cost) == ("underspecified", (0.0, 1.0), 0.5, 100.0)
    assert first.words == "by kernel; a 1.5; from 0 to 1 over the set-ups"
    assert (second.status, second.measured, second.words) == ("erratum", 0.0, "the sign; right is: it falls")
    lab.write_record([Standing(claim(f"toy/C{i}"), v, recorded=True) for i, v in ((1, first), (2, second))], shipped)
    assert "| 0 — the sign" in (shipped / "toy.md").read_text()  # a zero is a number, also when it is written again
    assert first.commit == status.recorded_verdicts.__wrapped__()["toy/C2"].commit


def test_a_picture_of_the_record_stands_alone():
    from xml.etree import ElementTree

    drawn = Plot("x", "y", [Series("a < b", [1, 2], [1, 2], line=True), Series("c", [1, 2], [2, 1])]).standalone()
    root = ElementTree.fromstring(drawn)
    texts = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"a < b", "c"} <= set(texts) and "--hue" in drawn
    assert float(root.get("viewBox").split()[3]) > 300
