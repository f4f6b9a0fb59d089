"""Every warning and every error that is not about an argument points to an entry that says why and what to do.

The instrument is read as source: everything but the laboratory. A sentence points by ``hint("slug")`` in it, or by the
slug that the functions which warn take.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from netvitals._help import CODES, NOT_SEEN, hint
from netvitals.capture.engine.roles import REASONS
from netvitals.cli import app
from netvitals.cli.explain import troubleshooting

HOUSE = Path(__file__).parents[2]
PACKAGE = HOUSE / "src" / "netvitals"
ROOMS = ("watch", "checkup", "capture", "vitals", "runs", "forecasts", "findings", "report", "integrations", "cli")
ARGUMENT = {"ValueError", "TypeError", "KeyError", "LookupError", "AttributeError", "Unclear", "NoChecksums"}
ENDS = {"typer.Exit", "typer.BadParameter", "SystemExit", "AssertionError", "Broken"}  # no sentence, or one of its own
CARRIED = {"missing", "damaged", "sentence", "trace.error", "strict.error", "collector.error"}  # worded elsewhere
# words of a sentence about an argument: what was expected, what there is, what to do
SAYS = re.compile(
    r"\b(got|must|expected|give|given|pass|use|ask|is now|there (is|are) no|no node|no law|did you mean|instead of|"
    r"needs?|has no|have one|has none|leave|not to|choose|call|lacks|lets no|of its own|by itself|has all of it|"
    r"no site)\b",
    re.IGNORECASE,
)
# what is caught where it is raised and said as the reason of another sentence
INNER = {
    "runs/untrusted.py",
    "runs/wal.py",
    "runs/checked.py",
    "runs/checksum.py",
    "runs/recovery.py",
    "capture/reduce_over_ranks.py",
}


def sentences():
    """(place, kind, expression) of every warning and every raise of the instrument."""
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE).as_posix()
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Raise) and node.exc is not None:
                kind = ast.unparse(node.exc.func) if isinstance(node.exc, ast.Call) else ast.unparse(node.exc)
                yield f"{place}:{node.lineno}", kind, node.exc
            elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("warn", "_warn", "_complain"):
                yield f"{place}:{node.lineno}", "warn", node


def slugs(expression):
    """Slugs that a sentence points to: ``hint("slug")`` inside, or the second argument of a function that warns."""
    for node in ast.walk(expression):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).split(".")[-1]
            wanted = {
                "hint": node.args[:1],
                "warn": node.args[1:2],
                "_warn": node.args[1:2],
                "_complain": node.args[1:2],
            }
            for argument in wanted.get(name, ()):
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield argument.value


@cache
def spoken():
    """The sentences of the whole instrument, and the slugs that each points to by its place."""
    everything = list(sentences())
    return everything, {place: set(slugs(node)) for place, _, node in everything}


def test_every_warning_points_to_an_entry():
    helpers = ("capture/engine/schedule.py", "runs/writer.py")  # the two functions that speak for others
    bare = [
        place
        for place, kind, node in spoken()[0]
        if kind == "warn"
        and not spoken()[1][place]
        and not (place.startswith(helpers) and "sentence" in ast.unparse(node))
    ]
    assert bare == []
    assert sum(kind == "warn" for _, kind, _ in spoken()[0]) >= 25


def test_every_error_that_is_not_about_an_argument_points_to_an_entry():
    """Files, memory, other processes, parts that are not installed, order of calls."""
    inside = {"MemoryError": "too_large"}  # words that a function gives to several
    bare = [
        (place, kind)
        for place, kind, node in spoken()[0]
        if kind not in ARGUMENT | ENDS | CARRIED | {"warn"}
        and kind[0].isupper()
        and not spoken()[1][place]
        and inside.get(kind, "?") not in ast.unparse(node)
    ]
    assert bare == []


def test_an_error_that_points_nowhere_says_itself_what_was_given_and_what_to_do():
    mute = []
    for place, kind, node in spoken()[0]:
        room = place.split("/")[0].removesuffix(".py").split(".py")[0]
        if kind not in ARGUMENT or spoken()[1][place] or not room.startswith(ROOMS):
            continue
        if place.split(":")[0] in INNER or not node.args:
            continue
        text = ast.unparse(node.args[0])
        if not SAYS.search(text):
            mute.append((place, text[:120]))
    assert mute == []


def test_every_slug_has_an_entry_and_every_entry_is_pointed_to():
    used = set()
    for path in PACKAGE.rglob("*.py"):
        if path.name != "_help.py":
            used |= set(slugs(ast.parse(path.read_text(encoding="utf-8"))))
    assert used - CODES.keys() == set()
    assert CODES.keys() - used == set()


@pytest.mark.parametrize("slug", CODES)
def test_an_entry_says_what_why_and_what_to_do(slug):
    entry = CODES[slug]
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", slug)
    assert entry.title[0].isupper() and not entry.title.endswith(".")
    for sentence in (entry.why, entry.advice):
        assert sentence.endswith(".") and 20 < len(sentence) < 400, sentence
        assert "  " not in sentence


def test_the_page_is_written_from_the_entries_with_an_anchor_each():
    text = (HOUSE / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    assert text == troubleshooting(), "write it with `netvitals explain --codes > docs/troubleshooting.md`"
    assert re.findall(r'<a id="([\w-]+)">', text) == [*CODES, "not-seen"]


def test_every_reason_for_not_seeing_a_place_has_its_advice():
    assert NOT_SEEN.keys() == REASONS.keys()
    assert all(reason in troubleshooting() for reason in REASONS.values())


def asked(*arguments):
    return CliRunner().invoke(app, ["explain", *arguments])


def test_the_command_prints_an_entry_lists_all_and_knows_what_was_meant():
    assert "what to do: Close the first watch" in asked("already-watched").output
    listed = asked().output
    assert all(slug in listed for slug in (*CODES, "not-seen"))
    assert "what to do: Watch the model before it is scripted." in asked("not-seen").output
    wrong = asked("no-los")
    assert isinstance(wrong.exception, ValueError) and "did you mean no-loss" in str(wrong.exception)
    assert asked("--codes").output == troubleshooting()


def test_a_sentence_shows_the_command_that_explains_it():
    assert hint("no-loss") == "(netvitals explain no-loss)"
