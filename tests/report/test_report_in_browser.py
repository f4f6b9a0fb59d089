"""Looked at in headless Chromium: drawn, without errors, without sideways scrolling, at desk and at phone width."""

from __future__ import annotations

import json
import re
import struct
import zlib
from html import escape, unescape

import pytest

from netvitals import report

pytestmark = pytest.mark.slow

# Put before and after the page's own script in a copy without the policy: catches errors, clicks on everything, tells.
BEFORE = """<script>window.problems = []; addEventListener("error", (e) => problems.push(String(e.message)));
console.error = (...a) => problems.push(a.join(" "));</script>"""
AFTER = """<script>
addEventListener("click", (e) => e.target.closest("a") && e.preventDefault());      // a frame would leave its page
document.querySelectorAll("[data-show]").forEach((a) => a.click());
document.querySelectorAll(".pill").forEach((p) => p.click());
document.querySelectorAll(".names button").forEach((b) => b.click());
document.querySelectorAll("details").forEach((d) => { d.open = true; });
const hover = new PointerEvent("pointermove", {clientX: 200, clientY: 200});
document.querySelectorAll(".heat canvas, .chart svg").forEach((c) => c.dispatchEvent(hover));
document.getElementById("theme").click();
setTimeout(() => {
  const canvases = [...document.querySelectorAll(".heat canvas")];
  const pixels = (c) => c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
  const painted = canvases.filter((c) => pixels(c).some((v) => v > 0));
  const root = document.documentElement;
  const told = { problems, drawn: root.dataset.drawn, theme: root.dataset.theme, width: innerWidth,
    overflow: root.scrollWidth - root.clientWidth, heat: canvases.length, painted: painted.length,
    lines: document.querySelectorAll(".lines:not([hidden]) path").length, broken: Boolean(window.broken),
    loss: document.querySelectorAll("[data-loss] path").length };
  const place = (window.parent || window).document.body;      // the outer page of a frame, or the page itself
  place.append(Object.assign(document.createElement("pre"), { id: "told", textContent: JSON.stringify(told) }));
}, 500);</script>"""


def examined(text: str, browse, tmp_path, width: int) -> dict:
    text = re.sub(r"<meta http-equiv=\"Content-Security-Policy\"[^>]*>", "", text)
    text = text.replace("<body>", "<body>" + BEFORE, 1).replace("</body>", AFTER + "</body>")
    page = tmp_path / "probe.html"
    # windows are never narrower than 500 pixels, frames are: the page is put in a frame of the wanted width
    page.write_text(
        f'<!doctype html><iframe width="{width}" height="900" style="border:0" srcdoc="{escape(text)}"></iframe>',
        encoding="utf-8",
    )
    found = re.search(r'<pre id="told">(.*?)</pre>', browse(page, 1400, "--dump-dom"), re.S)
    assert found is not None, "the page did not get as far as telling"
    return json.loads(unescape(found.group(1)))


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_is_drawn_without_errors_and_without_sideways_scrolling(run, browse, tmp_path, width):
    sentence = examined(report.render(run), browse, tmp_path, width)
    assert sentence["problems"] == []
    assert sentence["width"] == width
    assert sentence["overflow"] == 0
    assert int(sentence["drawn"]) == run.frame().filter(run.frame()["vital"] != "loss")["vital"].n_unique()
    assert sentence["heat"] > 3 and sentence["painted"] == sentence["heat"]
    assert sentence["lines"] > 0 and sentence["loss"] > 0
    assert sentence["theme"] == "dark"


def test_nasty_names_run_no_script_of_theirs(browse, tmp_path, nasty_run):
    sentence = examined(report.render(nasty_run), browse, tmp_path, 800)
    assert sentence["problems"] == [] and sentence["broken"] is False


def test_the_policy_lets_the_page_draw_itself(run, browse, tmp_path):
    """The page as it is written, policy and all: the script marks the root when every panel is drawn."""
    page = report.write(run, tmp_path / "report.html")
    assert re.search(r'<html[^>]*data-drawn="\d+"', browse(page, 1280, "--dump-dom"))


def test_a_screenshot_is_not_blank(run, browse, tmp_path):
    page, shot = report.write(run, tmp_path / "report.html"), tmp_path / "shot.png"
    browse(page, 1280, f"--screenshot={shot}", height=1600)
    data = shot.read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    assert (width, height) == (1280, 1600)
    raw = zlib.decompress(b"".join(_chunks(data, b"IDAT")))
    stride = len(raw) // height
    rows = {raw[i * stride : (i + 1) * stride] for i in range(height)}
    assert len(rows) > height // 3, f"only {len(rows)} different rows in a picture of {height}"


def _chunks(data: bytes, kind: bytes):
    at = 8
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        if data[at + 4 : at + 8] == kind:
            yield data[at + 8 : at + 8 + length]
        at += 12 + length
