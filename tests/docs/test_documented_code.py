"""Every Python block and every command of the README and of the site runs as it stands, and prints what is shown.

Blocks of a page share a folder and their names, from the first to the last, as a reader would paste them. A block whose
first line is ``# name.py`` is also saved under that name. A ``text`` block is what the block before it printed: each of
its lines must be among the lines printed, its numbers within a factor of TOLERANCE; ``…`` stands for what was left out.
What is not run says so where the reader sees it: the line above begins with ``*The tests do not run this code:`` and
gives the reason; commands there are parsed all the same.
"""

import contextlib
import io
import math
import pathlib
import re
import shlex
import sys
import textwrap
from dataclasses import dataclass, field

import pytest
import typer.main

from netvitals.cli import app, main

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMAND = typer.main.get_command(app)
NOT_RUN = "*The tests do not run this code:"
FENCE = re.compile(r"^(?P<indent> *)```(?P<kind>\w*)[^\n]*\n(?P<code>.*?)^(?P=indent)```", re.S | re.M)
NUMBER = r"[-+−]?(?:\d[\d,]*\.?\d*|\.\d+)(?:e[-+]?\d+)?|\b(?:nan|inf)\b"
TOLERANCE = 1.5  # training on another processor ends elsewhere; a number of another version is further off
TINY = 1e-6  # numbers below are rounding


@dataclass
class Block:
    kind: str
    code: str
    run: bool
    line: int


@dataclass
class Page:
    path: pathlib.Path
    blocks: list[Block] = field(default_factory=list)

    @property
    def name(self):
        return self.path.relative_to(ROOT).as_posix()


def read(path):
    page, text = Page(path), path.read_text(encoding="utf-8")
    for match in FENCE.finditer(text):
        above = text[: match.start()].rstrip().rpartition("\n")[2].strip()
        code = textwrap.dedent(match["code"])
        line = text.count("\n", 0, match.start()) + 2
        page.blocks.append(Block(match["kind"], code, not above.startswith(NOT_RUN), line))
    outside = FENCE.sub(lambda m: "\n" * m[0].count("\n"), text)
    for match in re.finditer(r"(?:^    netvitals .*\n)+", outside, re.M):
        line = outside.count("\n", 0, match.start()) + 1
        above = outside[: match.start()].rstrip().rpartition("\n")[2].strip()
        page.blocks.append(Block("", textwrap.dedent(match[0]), not above.startswith(NOT_RUN), line))
    page.blocks.sort(key=lambda block: block.line)
    return page


def commands(block):
    """Arguments of each command of a block; two spaces, or a hash, begin a remark."""
    if block.kind in ("python", "pycon", "text"):
        return []
    lines = [line.removeprefix("$ ") for line in block.code.replace("\\\n", " ").splitlines()]
    return [
        shlex.split(re.split(r"\s{3,}|\s+# ", line)[0].strip())[1:] for line in lines if line.startswith("netvitals ")
    ]


LONG = ("tutorials/language-model", "tutorials/singular", "tutorials/flat-loss", "studies", "learning-coefficient")
SITE = [page for page in map(read, PAGES) if any(b.kind == "python" or commands(b) for b in page.blocks)]


def parses(arguments):
    command, rest = COMMAND, list(arguments)
    while rest and rest[0] in getattr(command, "commands", {}):
        command = command.commands[rest.pop(0)]
    assert command is not COMMAND or not rest or rest[0].startswith("-"), f"there is no command {rest[0]!r}"
    if not {"--help", "--version"} & set(rest) and not hasattr(command, "commands"):
        command.make_context(command.name, rest)


def words(line):
    """A line without its rules and with single spaces."""
    return " ".join(re.sub(r"[│┃║─━═┆┌└┐┘╞╡├┤┬┴┼╪┈╌|]+", " ", line).split())


def pattern(line):
    """What a printed line must match: the words of the line shown, any numbers, anything for ``…``."""
    pieces = re.split(rf"({NUMBER}|\s*…\s*)", words(line))
    return "".join(
        re.escape(piece) if i % 2 == 0 else ".*" if "…" in piece else f"({NUMBER})" for i, piece in enumerate(pieces)
    )


def value(text):
    return float(text.replace(",", "").replace("−", "-"))


def near(a, b):
    """Whether two numbers agree, as far as other processors allow."""
    if not (math.isfinite(a) and math.isfinite(b)):
        return str(a) == str(b)
    low, high = sorted((abs(a), abs(b)))
    return high <= TINY or (a * b > 0 and high <= TOLERANCE * low)


def shown_was_printed(shown, printed):
    lines = [words(line) for line in printed.splitlines()]
    for line in shown.splitlines():
        numbers = [value(n) for n in re.findall(NUMBER, words(line))]
        alike = [match for one in lines if (match := re.fullmatch(pattern(line), one))]
        assert alike, f"the page shows {line!r}, which was not printed; printed was\n{printed}"
        found = [[value(n) for n in match.groups()] for match in alike]
        same = any(all(map(near, numbers, one)) for one in found)
        assert same, f"the page shows {line!r} with {numbers}, printed were {found}"


def run_python(block, page, names):
    first = block.code.splitlines()[0]
    if re.fullmatch(r"# \w+\.py", first):
        pathlib.Path(first[2:]).write_text(block.code, encoding="utf-8")
    exec(compile("\n" * (block.line - 1) + block.code, str(page.path), "exec"), names)


def run_command(arguments, page, block):
    code = 0
    try:
        main(list(arguments))
    except SystemExit as end:
        code = end.code or 0
    assert code in (0, 1), f"{page.name}:{block.line}: netvitals {shlex.join(arguments)}: code {code}"


@pytest.mark.parametrize(
    "page",
    [pytest.param(p, id=p.name, marks=pytest.mark.slow if p.name[5:-3] in LONG else ()) for p in SITE],
)
def test_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("COLUMNS", "120")
    names, printed, before = {"__name__": "__main__"}, "", set(sys.modules)
    try:
        for block in page.blocks:
            if block.kind == "text":
                if printed:
                    shown_was_printed(block.code, printed)
                continue
            for arguments in commands(block):
                parses(arguments)
            if not block.run:
                printed = ""
                continue
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                if block.kind == "python":
                    run_python(block, page, names)
                if page.path.name != "README.md":  # there they are parsed: the tutorials run them
                    for arguments in commands(block):
                        run_command(arguments, page, block)
            if block.kind == "python" or commands(block):
                printed = output.getvalue()
    finally:
        for name in set(sys.modules) - before:  # a page's own modules are not those of the next page
            if str(tmp_path) in (getattr(sys.modules[name], "__file__", None) or ""):
                del sys.modules[name]


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_commands_named_in_the_text_exist(path):
    named = set(re.findall(r"`netvitals ([a-z]\w*)", path.read_text(encoding="utf-8")))
    assert named <= set(COMMAND.commands), f"{path.name} names {sorted(named - set(COMMAND.commands))}"


def test_linked_files_of_the_readme_exist():
    readme = ROOT / "README.md"
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", readme.read_text(encoding="utf-8")):
        assert (readme.parent / target).exists(), f"README.md links to {target}"


def test_there_are_blocks_to_run():
    run = [b for page in SITE for b in page.blocks if b.run and (b.kind == "python" or commands(b))]
    shown = [b for page in SITE for b in page.blocks if b.kind == "text"]
    assert len(run) > 60, f"only {len(run)} blocks were found to run"
    assert len(shown) > 20, f"only {len(shown)} outputs were found to compare"


def test_what_is_not_run_says_why():
    for page in SITE:
        text = page.path.read_text(encoding="utf-8")
        for line in re.findall(rf"^{re.escape(NOT_RUN)}(.*)$", text, re.M):
            assert len(line.split()) > 3, f"{page.name}: {line!r} gives no reason"


def test_an_output_that_was_not_printed_is_noticed():
    printed = "step 40: loss 0.5 (80 % interval 64 to 83)\nall good"
    shown_was_printed("step 40: loss 0.4 (80 % interval 60 to 90)\n…\nall …", printed)
    with pytest.raises(AssertionError, match="was not printed"):
        shown_was_printed("step 40: gain 0.5 (80 % interval 64 to 83)", printed)
    with pytest.raises(AssertionError, match="was not printed"):
        shown_was_printed("all … bad", printed)
    with pytest.raises(AssertionError, match="printed were"):
        shown_was_printed("step 40: loss 0.25 (80 % interval 64 to 83)", printed)
    with pytest.raises(AssertionError, match="printed were"):
        shown_was_printed("step 40: loss -0.5 (80 % interval 64 to 83)", printed)
