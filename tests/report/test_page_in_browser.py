"""Looked at in a real browser: drawn without errors, at desk and phone width, reachable by keys, and live."""

from __future__ import annotations

import re
import threading
import time

import numpy as np
import pytest

from netvitals import report
from netvitals.capture import Measurement
from netvitals.runs import RunWriter

axe = pytest.importorskip("axe_playwright_python.base", reason="axe-playwright-python is not installed")
SERIOUS = ("serious", "critical")
PAINTED = """[...document.querySelectorAll('.cells canvas')].map(
  c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(v => v > 0))"""
SMALL = """[...document.querySelectorAll('#app *')].filter(
  e => [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()) && e.getBoundingClientRect().width
    && parseFloat(getComputedStyle(e).fontSize) < 11).length"""
PANEL = "(document.activeElement.closest('section, .tiles, .bar') || {}).id || document.activeElement.tagName"


def problems_of(page) -> list[str]:
    """Errors of scripts, from now on."""
    found: list[str] = []
    page.on("pageerror", lambda error: found.append(str(error)))
    page.on("console", lambda message: found.append(message.text) if message.type == "error" else None)
    return found


def drawn(page) -> None:
    page.wait_for_selector("html[data-drawn] .cells canvas")
    page.wait_for_timeout(150)


def until(true, seconds: float = 20.0) -> None:
    """Wait for something that the page's policy lets nobody ask from inside."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.05)


def violations(page) -> list[str]:
    page.add_script_tag(content=axe.AXE_FILE_PATH.read_text(encoding="utf-8"))
    told = page.evaluate("axe.run(document)")
    return [
        f"{v['id']}: {n['target']} {n.get('failureSummary', '')[:160]}"
        for v in told["violations"]
        if v["impact"] in SERIOUS
        for n in v["nodes"][:3]
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_the_report_is_drawn_without_errors_and_without_sideways_scrolling(run, tab, tmp_path, width, theme):
    page = tab(width, theme)
    problems = problems_of(page)
    page.goto(report.write(run, tmp_path / "report.html").as_uri())
    drawn(page)
    assert problems == []
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert page.evaluate(PAINTED) == [True]
    assert page.evaluate("document.documentElement.dataset.theme") == theme
    small = page.evaluate(SMALL)
    assert small == 0, f"{small} texts are smaller than 11 px"


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_serious_keeps_anybody_out(run, tab, tmp_path, theme):
    writable = report.render(run).replace("script-src 'sha256", "script-src 'unsafe-inline' 'unused", 1)
    writable = re.sub(r"script-src [^\"]*\"", "script-src 'unsafe-inline' 'unsafe-eval'\"", writable, count=1)
    (tmp_path / "report.html").write_text(writable, encoding="utf-8")
    page = tab(1440, theme)
    page.goto((tmp_path / "report.html").as_uri())
    drawn(page)
    assert violations(page) == []
    site = run.frame().filter(run.frame()["vital"] == "gates")["site"][0]
    page.evaluate(f"nv.show({{site: {site!r}}})")
    page.wait_for_selector(".card.site .chart svg")
    assert violations(page) == []


def test_every_panel_is_reached_in_thirty_tabs_and_the_map_by_arrows(run, tab, tmp_path):
    page = tab(1440, "light")
    page.goto(report.write(run, tmp_path / "report.html").as_uri())
    drawn(page)
    seen = []
    for _ in range(30):
        page.keyboard.press("Tab")
        seen.append(page.evaluate(PANEL))
        if page.evaluate("document.activeElement.matches('.cells canvas')"):
            break
    assert page.evaluate("document.activeElement.matches('.cells canvas')"), seen
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowLeft")
    assert "step" in page.inner_text("#layers .layers .readout")
    page.keyboard.press("Enter")
    page.wait_for_selector(".card.site")


def test_nasty_names_run_no_script_of_theirs(nasty_run, tab, tmp_path):
    page = tab(800, "light")
    problems = problems_of(page)
    page.goto(report.write(nasty_run, tmp_path / "report.html").as_uri())
    drawn(page)
    assert problems == [] and not page.evaluate("Boolean(window.broken)")


def described(names):
    site = {"kind": "activation", "op": "relu", "role": "hidden activation"}
    return {"model": "Deep", "sites": [{"name": n, **site} for n in names]}


def big_run(path, sites=200, steps=60, sick=range(151, 200)):
    """A model of many layers, of which the last fifty die half-way; twelve blocks."""
    names = [f"block.{i // 17}.layer{i}.act" for i in range(sites)]
    meta = {
        "model": "Deep",
        "sites": [{"name": n, "kind": "activation", "op": "relu", "role": "hidden activation"} for n in names],
    }
    rng = np.random.default_rng(0)
    with RunWriter(path, meta=meta) as writer:
        for step in range(steps):
            rows = [Measurement(step, "loss", "model", "loss", 2.0 / (1 + step / 10) + 0.01 * rng.normal())]
            for i, name in enumerate(names):
                dead = i in sick and step > steps // 2
                rows += [
                    Measurement(step, "sparsity", name, "hard", 0.97 if dead else 0.5 + 0.01 * rng.normal()),
                    Measurement(step, "sparsity", name, "dead_units", 0.95 if dead else 0.0),
                    Measurement(step, "gates", name, "density@0.1", 0.03 if dead else 0.5),
                ]
            writer.write(rows)
    return names


def test_of_two_hundred_layers_the_sick_are_on_top_and_found_by_name(tab, tmp_path):
    names = big_run(tmp_path / "deep")
    from netvitals import open_run

    page = tab(1440, "light")
    page.goto(report.write(open_run(tmp_path / "deep"), tmp_path / "deep.html").as_uri())
    drawn(page)
    page.click("#findings .finding .kind button")
    shown = page.eval_on_selector_all(".map .name button", "all => all.map(b => b.title)")
    assert shown and shown[0] in names[151:], f"first shown: {shown[:3]}"
    heights = page.eval_on_selector_all(".map .name button", "all => all.map(b => b.getBoundingClientRect().height)")
    assert min(heights) >= 24
    page.fill("#layers input[type=search]", "layer7\\b")
    until(lambda: page.locator(".map .name button").count() == 1)
    assert page.eval_on_selector_all(".map .name button", "all => all.map(b => b.title)") == [names[7]]
    assert "q=layer7" in page.evaluate("location.hash")


# ---------------------------------------------------------------- live


@pytest.fixture
def served(tmp_path):
    """A server for the runs in ``tmp_path``, and its address."""
    uvicorn = pytest.importorskip("uvicorn")
    from netvitals.report.live import create_app

    config = uvicorn.Config(create_app(tmp_path, "secret"), host="127.0.0.1", port=0, log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield lambda place: f"http://127.0.0.1:{port}{place}{'&' if '?' in place else '?'}token=secret"
    server.should_exit = server.force_exit = True  # a page that is still open holds its stream
    thread.join(60)


@pytest.mark.slow
def test_a_run_turns_sick_while_the_page_is_open(tab, tmp_path, served):
    """The walk: a toast, the layer in two clicks, the healthy run beside it, the difference on one screen."""
    big_run(tmp_path / "healthy", sites=40, sick=())
    names = [f"block.{i // 17}.layer{i}.act" for i in range(40)]
    meta = {
        "model": "Deep",
        "sites": [{"name": n, "kind": "activation", "op": "relu", "role": "hidden activation"} for n in names],
    }
    writer = RunWriter(tmp_path / "sick", meta=meta)

    def look(step, dead):
        rows = [Measurement(step, "loss", "model", "loss", 2.0 / (1 + step / 10))]
        for i, name in enumerate(names):
            ill = dead and i == 33
            rows += [
                Measurement(step, "sparsity", name, "hard", 0.99 if ill else 0.5),
                Measurement(step, "sparsity", name, "dead_units", 0.99 if ill else 0.0),
                Measurement(step, "gates", name, "density@0.1", 0.01 if ill else 0.5),
            ]
        writer.write(rows)

    try:
        for step in range(30):
            look(step, dead=False)
        assert writer.flush()
        page = tab(1440, "light")
        problems = problems_of(page)
        page.goto(served("/run/sick"))
        drawn(page)
        page.select_option("#layers .tools select", "gates")
        page.click("#findings summary >> text=What was checked")
        assert page.query_selector(".toast") is None
        for step in range(30, 60):
            look(step, dead=True)
        assert writer.flush()
        page.wait_for_selector(".toast", timeout=20_000)
        assert page.query_selector("#findings details.more[open]") is not None, "what was open stays open"
        assert page.input_value("#layers .tools select") == "gates", "what was chosen stays chosen"
        page.click(".toast button >> text=show")
        page.wait_for_selector(f".chosen .keys button >> text={names[33]}")
        page.click(f".chosen .keys button >> text={names[33]}")
        page.wait_for_selector(".card.site h2")
        assert names[33] in page.inner_text(".card.site h2")
        page.goto(served("/compare?run=sick&run=healthy#vital=gates&metric=density@0.1"))
        page.wait_for_selector("#difference .cells canvas")
        said = page.inner_text(".hero .words")
        assert "first differ at step 30" in said and names[33] in said, said
        assert problems == []
    finally:
        writer.close()


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_serious_keeps_anybody_out_of_the_live_pages(browser, tmp_path, served, theme):
    for name in ("alpha", "beta"):
        big_run(tmp_path / name, sites=6, steps=12, sick=(5,) if name == "beta" else ())
    context = browser.new_context(viewport={"width": 1440, "height": 900}, color_scheme=theme, bypass_csp=True)
    page = context.new_page()
    for place, shown in (
        ("/", ".runs tbody tr"),
        ("/compare?run=beta&run=alpha#vital=gates&metric=density@0.1", ".cells canvas"),
    ):
        page.goto(served(place.split("#")[0]) + ("#" + place.split("#")[1] if "#" in place else ""))
        page.wait_for_selector(shown)
        assert violations(page) == [], place
    context.close()


def test_the_list_of_runs_is_searched_sorted_and_compared(tab, tmp_path, served):
    for name in ("alpha", "beta", "gamma"):
        big_run(tmp_path / name, sites=6, steps=12, sick=(5,) if name == "beta" else ())
    page = tab(1440, "dark")
    page.goto(served("/"))
    page.wait_for_selector(".runs tbody tr")
    page.wait_for_selector(".runs .critical, .runs .warning", timeout=30_000)
    rows = "all => all.map(r => r.querySelector('a').innerText)"
    assert page.eval_on_selector_all(".runs tbody tr", rows)[0] == "beta", "the most severe first"
    page.click(".runs th button >> text=run")
    assert page.eval_on_selector_all(".runs tbody tr", rows)[0] == "alpha"
    page.fill("input[type=search]", "^al|gam")
    until(lambda: page.locator(".runs tbody tr").count() == 2)
    page.check(".runs tbody tr:nth-child(1) input")
    page.check(".runs tbody tr:nth-child(2) input")
    page.click("a.button")
    page.wait_for_selector(".parted, .card")
    assert "side by side" in page.inner_text("h1")


def test_runs_whose_names_hold_every_sign_are_chosen_and_compared(tab, tmp_path, served):
    names = ["a|b", "50%7C|%25", "<i>'\"&#?;=+,~`^[]{}()*!@$\\"]
    for name in names:
        with RunWriter(tmp_path / name) as writer:
            writer.write([Measurement(step, "loss", "model", "loss", 1.0) for step in range(5)])
    page = tab(1200, "light")
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(served("/"))
    for name in names:
        page.get_by_label(f"compare {name}", exact=True).click()
    page.wait_for_selector("text=compare 3 runs")
    for name in names:
        assert page.get_by_label(f"compare {name}", exact=True).is_checked()
    page.click("text=compare 3 runs")
    page.wait_for_selector("h1:has-text('3 runs side by side')")
    assert [a.inner_text() for a in page.query_selector_all(".keys a")] == names
    page.click(".keys a >> nth=2")
    page.wait_for_selector("#loss")
    assert page.inner_text("h1") == names[2] and not errors
