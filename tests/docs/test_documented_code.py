"""Every Python block and every command of the README and of the site runs as it stands, and prints what is shown.

Blocks of a page share a folder and their names, from the first to the last, as a reader would paste them. A block whose
first line is ``# name.py`` is also saved under that name. A ``text`` block is what the block before it printed: each of
its lines must be among the lines printed, numbers aside; ``…`` stands for what was left out. What is not run says so
where the reader sees it: the line above begins with ``*Not run in the tests:`` and gives the reason; commands there are
parsed all the same.
"""

import contextlib
import io
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
NOT_RUN = "*Not run in the tests:"
FENCE = re.compile(r"^(?P<indent> *)```(?P<kind>\w*)[^\n]*\n(?P<code>.*?)^(?P=indent)```", re.S | re.M)
NUMBER = re.compile(r"[-+−]?(\d[\d,]*\.?\d*|\.\d+)(e[-+]?\d+)?|\b(nan|inf)\b")


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
    """A line without its numbers, rules and spaces: what must be the same on every machine."""
    return " ".join(re.sub(r"[│┃║─━═┆┌└┐┘╞╡├┤┬┴┼╪┈╌|]+", " ", NUMBER.sub("#", line)).split())


def shown_was_printed(shown, printed):
    lines = {words(line) for line in printed.splitlines()}
    for line in shown.splitlines():
        pieces = [words(piece) for piece in line.split("…")]
        near = any(_in_order(pieces, one) for one in lines)
        assert near, f"the page shows {line!r}, which was not printed; printed was\n{printed}"


def _in_order(pieces, line):
    """Whether the pieces of a line are in another, in their order; a whole line must be the whole other."""
    if len(pieces) == 1:
        return pieces[0] == line
    at = 0
    for piece in filter(None, pieces):
        at = line.find(piece, at)
        if at < 0:
            return False
        at += len(piece)
    return line.startswith(pieces[0]) and line.endswith(pieces[-1])


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
    shown_was_printed("step 7: loss 1e-3 (80 % interval 1 to 2)\n…\nall …", printed)
    with pytest.raises(AssertionError, match="was not printed"):
        shown_was_printed("step 7: gain 1e-3 (80 % interval 1 to 2)", printed)
    with pytest.raises(AssertionError, match="was not printed"):
        shown_was_printed("all … bad", printed)
