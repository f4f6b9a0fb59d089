"""Draw sentences that a user can meet, for readers who see nothing else.

    python bench/readers/draw.py --seed 1 > sentences.txt

A reader marks each sentence that needs a second reading. The lists that were marked are kept beside this file.
Drawn from: findings (docs/findings.md), errors and warnings, command help, the page, README, the guides of docs,
and public docstrings; as many from each kind, in random order. Code, tables and records of the papers are left out.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "netvitals"
GUIDES = ("how-to", "tutorials", "explanation", "symptoms", "gallery")
PACKAGES = [
    "activations",
    "anatomy",
    "capture",
    "curvature",
    "drift",
    "forecasts",
    "gates",
    "layers",
    "optim",
    "report",
    "runs",
    "saddle",
    "singular",
]
LEAST = 5  # words of a sentence


def sentences(text: str) -> list[str]:
    """The sentences of a Markdown text or docstring, without code, tables, headings and lists of arguments."""
    text = re.sub(r"(?m)^(> ?)+", "", text)
    text = re.sub(r"```.*?```|<details>|</details>|<[^>]+>", "\n\n", text, flags=re.S)
    text = re.sub(r"(?m)^(    .*|\|.*|#.*|\s*>>>.*|:::.*|!\[.*)$", "", text)
    text = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", text)
    text = re.sub(r":\w+:`~?([^`]+)`", lambda m: "`" + m[1].rpartition(".")[2] + "`", text)
    found = []
    for block in re.split(r"\n\s*\n|\n\s*[-*] |\n\d+\. ", text):
        joined = " ".join(block.split())
        found += re.split(r"(?<=[.!?])(?:\*\*)?\s+(?=[A-Z`*])", joined)
    return [s.strip() for s in found if len(s.split()) >= LEAST and re.match(r"[A-Z`*]", s.strip())]


def guides() -> Iterator[str]:
    """Sentences of the pages that a person wrote for users."""
    for page in sorted([*(ROOT / "docs").glob("*.md"), *(p for g in GUIDES for p in (ROOT / "docs" / g).glob("*.md"))]):
        if page.name not in ("findings.md", "vital-signs.md", "ARCHITECTURE.md", "DEPENDENCIES.md", "studies.md"):
            yield from sentences(page.read_text())


def strings(node: ast.AST) -> str:
    """A string expression as a user may see it: what is put in is shown as its expression."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(v.value if isinstance(v, ast.Constant) else "‹…›" for v in node.values)
    if isinstance(node, ast.BinOp):
        return strings(node.left) + strings(node.right)
    return ""


def errors() -> Iterator[str]:
    """What exceptions and warnings say."""
    for file in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            call = node.exc if isinstance(node, ast.Raise) else node
            if isinstance(call, ast.Call) and call.args:
                name = getattr(call.func, "id", getattr(call.func, "attr", ""))
                if name.endswith(("Error", "NoRun", "warn")) and len((said := strings(call.args[0])).split()) >= LEAST:
                    yield said.strip()


def docstrings() -> Iterator[str]:
    """Sentences of public functions and classes, and of the public methods of these."""
    for name in ["netvitals", *(f"netvitals.{p}" for p in PACKAGES)]:
        module = importlib.import_module(name)
        for entry in sorted(getattr(module, "__all__", ())):
            value = getattr(module, entry, None)
            members = [v for k, v in vars(value).items() if not k.startswith("_")] if inspect.isclass(value) else []
            for one in [value, *members]:
                if (inspect.isfunction(one) or inspect.isclass(one)) and (text := inspect.getdoc(one)):
                    yield from sentences(re.split(r"(?m)^>>>", text)[0])


def commands() -> Iterator[str]:
    """What ``--help`` of every command says."""
    import typer

    from netvitals.cli import app

    pending = [typer.main.get_command(app)]
    while pending:
        command = pending.pop()
        pending += getattr(command, "commands", {}).values()
        yield from sentences(command.help or "")
        for option in command.params:
            yield from (s for s in sentences(getattr(option, "help", "") or "") if s)


def page() -> Iterator[str]:
    """Words of the page: its templates and scripts, and the meanings of vital signs and metrics."""
    for file in sorted((SOURCE / "report" / "app").glob("*.js")):
        yield from re.findall(r">([A-Z][^<>${}`]{20,}?[.!?])<", file.read_text())
    text = (ROOT / "docs" / "vital-signs.md").read_text()
    for cell in re.findall(r"\| ([^|`]{25,}?) (?=\|)", text):
        if len(cell.split()) >= LEAST and not re.fullmatch(r"[\w@]+(, [\w@]+)*", cell):
            yield cell[0].upper() + cell[1:]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    args = parser.parse_args()
    kinds = {
        "findings": sentences((ROOT / "docs" / "findings.md").read_text()),
        "errors": list(errors()),
        "help": list(commands()),
        "page": list(page()),
        "README": sentences((ROOT / "README.md").read_text()),
        "guides": list(guides()),
        "docstrings": list(docstrings()),
    }
    draw = random.Random(args.seed)
    share = -(-args.count // len(kinds))
    pools = {kind: sorted(set(said)) for kind, said in kinds.items()}
    drawn = [(kind, s) for kind, pool in pools.items() for s in draw.sample(pool, min(share, len(pool)))]
    draw.shuffle(drawn)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    print(f"seed {args.seed}, commit {commit.strip()}, of", {k: len(set(v)) for k, v in kinds.items()}, file=sys.stderr)
    for number, (kind, said) in enumerate(drawn[: args.count], 1):
        print(f"{number}\t{kind}\t{said}")


if __name__ == "__main__":
    main()
