"""The site builds without a warning and without a network, and its reference has everything that is public."""

import html
import importlib
import inspect
import json
import math
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest
import typer.main

import netvitals
from netvitals import vitals
from netvitals.cli import app
from netvitals.findings import REMEDIES, RULES

pytest.importorskip("mkdocs", reason="the site needs the extra docs")
pytest.importorskip("mkdocstrings_handlers.python", reason="the site needs the extra docs")

ROOT = Path(__file__).parents[2]
INNER = {"cli", "watching"}  # not imported by anybody: commands, and what a watch is made of

# What a new user asks, written down before the pages were, and the page that answers.
QUESTIONS = {
    "why is my loss flat": "tutorials/flat-loss.html",
    "my loss is nan": "symptoms/nan.html",
    "dead relu": "symptoms/layers.html",
    "watch": "reference/netvitals.html",
    "how do I use it with Lightning": "how-to/trainers.html",
    "send vital signs to wandb": "how-to/trackers.html",
    "what to do about dead units": "findings.html",
    "what does update_ratio mean": "reference/metrics.html",
    "compare two runs": "tutorials/compare-runs.html",
    "resume after a crash": "how-to/resume.html",
    "fail a pipeline when training is sick": "how-to/ci.html",
    "write my own vital sign": "tutorials/own-vital-sign.html",
    "how much does watching cost": "how-to/big-runs.html",
}


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder), "-f", "mkdocs.yml"]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_MKDOCS_2_WARNING": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    return folder, done


@pytest.fixture(scope="module")
def site(build):
    folder, done = build
    if done.returncode:
        pytest.fail(f"the site was not built:\n{done.stderr[-3000:]}")
    return folder


def page(site, name):
    return (site / f"{name}.html").read_text(encoding="utf-8")


def words(text):
    """A page as a reader sees it: no tags, no entities, one space between words."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", text)).split())


def sections(text):
    """What stands below each second heading, by the heading's id."""
    pieces = re.split(r'<h2[^>]*\bid="([^"]+)"', text)
    return dict(zip(pieces[1::2], pieces[2::2]))


def test_it_builds_strictly_without_a_warning(build):
    _, done = build
    assert done.returncode == 0, done.stderr[-3000:]
    warned = [line for line in done.stderr.splitlines() if re.match(r"(WARNING|ERROR|CRITICAL)", line)]
    assert not warned, warned


def test_nothing_is_loaded_from_a_network(site):
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|iframe|source)\b[^>]*\bsrc="(?:https?:)?//[^"]*"', text)
        loaded += re.findall(r'<link\b(?![^>]*rel="canonical")[^>]*\bhref="(?:https?:)?//[^"]*"', text)
        assert not loaded, f"{path.relative_to(site)} loads {loaded[:3]}"


def test_formulas_are_drawn_by_the_browser(site):
    pages = [p.read_text(encoding="utf-8") for p in site.rglob("*.html")]
    assert sum(text.count("<math") for text in pages) > 100
    assert not any('class="arithmatex"' in text for text in pages)


def rooms():
    found = [m.name for m in pkgutil.iter_modules(netvitals.__path__) if m.ispkg and m.name not in INNER]
    return ["", *found, "curvature.dag"]


@pytest.mark.parametrize("room", rooms(), ids=lambda room: room or "netvitals")
def test_every_public_name_is_in_the_reference(site, room):
    path = f"netvitals.{room}" if room else "netvitals"
    text = page(site, f"reference/{room or 'netvitals'}")
    names = [n for n in getattr(importlib.import_module(path), "__all__", ()) if not n.startswith("__")]
    names = [n for n in names if room or not inspect.ismodule(getattr(netvitals, n))]  # packages have their own pages
    missing = [name for name in names if f'id="{path}.{name}"' not in text]
    assert not missing, f"{path} has {missing}, which {len(names)} names of the reference do not show"


def test_every_metric_of_every_vital_sign_is_in_the_reference(site):
    found = sections(page(site, "reference/vital-signs"))
    glossary = page(site, "reference/metrics")
    for name, kind in vitals.REGISTRY.items():
        text = _rows(found[name])
        assert words(kind.meaning) in text
        for metric, (meaning, unit) in kind.metrics.items():
            assert f"{metric} {words(meaning)} {unit}".rstrip() in text, (name, metric)
            assert f"<code>{html.escape(metric)}</code>" in glossary, metric


def _rows(text):
    """Cells of tables with a space between them."""
    return words(re.sub(r"</td>", " ", text))


def test_every_rule_has_a_section_on_the_page_of_findings(site):
    text = page(site, "findings")
    found = sections(text)
    for rule in RULES:
        shown = _rows(found[rule.name.lower().replace(" ", "-")])
        for part in (rule.question, rule.threshold, rule.source, rule.null, rule.refuted_by):
            assert words(part.replace("<", "&lt;")) in shown, (rule.name, part)
    assert all(f"<code>{kind}</code>" in text for kind in REMEDIES)


def every_command(command, path):
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from every_command(child, f"{path} {name}")


def test_every_command_with_every_option_is_in_the_reference(site):
    found = sections(page(site, "reference/commands"))
    for path, command in every_command(typer.main.get_command(app), "netvitals"):
        text = found[path.replace(" ", "-")]
        options = [o for p in command.params for o in (*p.opts, *p.secondary_opts) if o.startswith("--")]
        missing = [option for option in options if f"<code>{option}</code>" not in text]
        assert not missing, f"{path}: {missing}"


COMMON = re.compile(
    r"a|an|and|are|as|be|by|do|does|for|from|how|i|in|is|it|its|me|my|of|on|or|that|the|this|to|with|what|when"
)


def terms(text):
    found = re.findall(r"[a-z0-9_]+", text.lower())
    return [re.sub(r"(ing|s|e)$", "", w) if len(w) > 3 else w for w in found if not COMMON.fullmatch(w)]


def ranked(index, question):
    """Pages by BM25 over their sections, where a title counts a thousand times as the theme's own search has it."""
    scores = defaultdict(float)
    docs = index["docs"]
    for field, boost in (("title", 1000.0), ("text", 1.0)):
        bags = [Counter(terms(words(d[field]))) for d in docs]
        mean = sum(sum(b.values()) for b in bags) / len(bags)
        for term in set(terms(question)):
            holders = sum(term in b for b in bags)
            rare = math.log(1 + (len(bags) - holders + 0.5) / (holders + 0.5))
            for i, bag in enumerate(bags):
                if bag[term]:
                    tf = bag[term] * 2.2 / (bag[term] + 1.2 * (0.25 + 0.75 * sum(bag.values()) / mean))
                    scores[i] += boost * rare * tf
    best = defaultdict(float)
    for i, score in scores.items():
        where = docs[i]["location"].split("#")[0]
        best[where] = max(best[where], score)
    return sorted(best, key=best.get, reverse=True)


@pytest.fixture(scope="module")
def index(site):
    return json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("question", "answer"), QUESTIONS.items())
def test_search_leads_to_the_answer(index, question, answer):
    first = ranked(index, question)[:3]
    assert answer in first, f"{question!r} leads to {first}, and {answer} answers it"


def test_the_sites_own_search_leads_to_the_answers(site):
    """In a browser, from the folder and without a network: the page is among the first three that are offered."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no chromium, chromium-browser or google-chrome to search with")
    playwright = pytest.importorskip("playwright.sync_api")
    lost = {}
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        opened = browser.new_context(offline=True).new_page()
        opened.goto((site / "index.html").as_uri())
        opened.keyboard.press("/")
        field = opened.locator("input.md-search__input")
        items = ".md-search-result__item > a.md-search-result__link"
        links = opened.locator(items)
        field.focus()
        for question, answer in QUESTIONS.items():
            field.fill("")
            field.dispatch_event("keyup")  # what the theme listens to
            opened.wait_for_function(f"document.querySelectorAll('{items}').length == 0")
            field.fill(question)
            field.dispatch_event("keyup")
            opened.wait_for_function(f"document.querySelectorAll('{items}').length > 0", timeout=60_000)
            pages = [re.sub(r"[?#].*", "", link.get_attribute("href")) for link in links.all()]
            first = list(dict.fromkeys(pages))[:3]
            if not any(one.endswith(answer) for one in first):
                lost[question] = first
        browser.close()
    assert not lost, lost
