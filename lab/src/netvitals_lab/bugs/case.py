"""A case: a script with a bug and its fix, or a healthy one."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

CASES = Path(__file__).parent / "cases"
Half = Literal["development", "published"]
Collection = Literal["halves", "third"]
FOLDERS: dict[Collection, Path] = {"halves": CASES, "third": CASES / "third"}


@dataclass(frozen=True)
class Case:
    """One script: what it is, where it comes from, and which answers name its cause."""

    name: str
    title: str
    kind: Literal["bug", "healthy"]
    text: str
    source: str
    catalogue: str
    field: str
    causes: tuple[str, ...] = ()
    observable: bool = True
    collection: Collection = "halves"

    @property
    def half(self) -> Half:
        """By a hash of the source, so that one report is never in both halves; the third collection is held out."""
        if self.collection == "third":
            return "published"
        return "published" if hashlib.sha256(self.source.encode()).digest()[0] % 2 else "development"

    def variant(self, fixed: bool) -> str:
        """The script with its bug, or with its fix.

        >>> case = Case("x", "", "bug", "a = 1  # bug\\n# fix: a = 2\\nb = a", "", "", "")
        >>> case.variant(False).split(), case.variant(True).split()
        (['a', '=', '1', '#', 'bug', 'b', '=', 'a'], ['a', '=', '2', 'b', '=', 'a'])
        """
        lines = []
        for line in self.text.splitlines():
            fix = re.match(r"(\s*)# fix: ?(.*)", line)
            if fix is not None:
                lines += [fix[1] + fix[2]] * fixed
            elif not (fixed and re.search(r"#\s*bug\s*$", line)):
                lines.append(line)
        return "\n".join(lines)


def cases(half: Half | None = None, collection: Collection | None = "halves") -> list[Case]:
    """The cases of one collection (``None``: of all), or those of one half."""
    every = [
        _read(path, name)
        for name, folder in FOLDERS.items()
        if collection in (None, name)
        for kind in ("bugs", "healthy")
        for path in sorted((folder / kind).glob("*.py"))
    ]
    return [case for case in every if half is None or case.half == half]


def _read(path: Path, collection: Collection) -> Case:
    text = path.read_text(encoding="utf-8")
    head = text.split('"""')[1]
    facts = {key: value.strip() for key, value in re.findall(r"^(\w+): *(.+)$", head, flags=re.MULTILINE)}
    causes = re.split(r",\s*", facts.get("cause", "").replace("NEW", ""))
    return Case(
        name=path.stem,
        title=head.strip().splitlines()[0],
        kind="bug" if path.parent.name == "bugs" else "healthy",
        text=text,
        source=facts["source"],
        catalogue=facts.get("catalogue", ""),
        field=facts.get("field", ""),
        causes=tuple(filter(None, (cause.strip() for cause in causes))),
        observable=not facts.get("observable", "yes").startswith("no"),
        collection=collection,
    )
