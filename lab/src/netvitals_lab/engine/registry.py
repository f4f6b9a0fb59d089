"""Finding studies and claims by name. A paper's folder is imported when it is first asked for.

Every module (or package) in ``papers/<paper>/`` may have a tuple ``STUDIES``, and its ``Claims`` are its claims.
Modules whose name begins with an underscore are not measured.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import warnings
from collections.abc import Iterable, Sequence
from functools import lru_cache
from types import ModuleType

from netvitals_lab.engine.claim import Claim
from netvitals_lab.engine.declaring import declared_in
from netvitals_lab.engine.statements import attributed
from netvitals_lab.engine.study import SCALES, Study
from netvitals_lab.engine.verdict import STATUSES

_HERE = "netvitals_lab.papers"


def papers() -> list[str]:
    """Names of the folders here, in words: ``weight-drift`` for ``weight_drift``."""
    package = importlib.import_module(_HERE)
    return sorted(m.name.replace("_", "-") for m in pkgutil.iter_modules(package.__path__) if m.ispkg)


def all_studies(paper: str | None = None) -> list[Study]:
    """Every study, or those of one paper."""
    return [s for folder in _folders(paper) for s in _load(folder)[0]]


def all_claims(paper: str | None = None, *, folder: str | None = None) -> list[Claim]:
    """Every claim, or those of one paper (a folder, or the paper that a claim names); of one ``folder`` no other is
    imported."""
    if folder is not None:
        return [c for name in _folders(folder) for c in _load(name)[1]]
    claims = [c for folder in papers() for c in _load(folder)[1]]
    if paper is None:
        return claims
    known = sorted({c.paper for c in claims} | set(papers()))
    if paper not in known:
        raise LookupError(f"there is no paper {paper!r}; {_nearest(paper, known)}")
    return [c for c in claims if paper in (c.paper, c.id.split("/")[0])]


def find_study(name: str, near: str = "") -> Study:
    """The study called ``name``: looked for in the folder of the claim ``near``, then where its name begins, then in
    all."""
    for folder in sorted(papers(), key=lambda p: (p != near.split("/")[0], not name.startswith(p), p)):
        for study in _load(folder)[0]:
            if study.name == name:
                return study
    raise LookupError(f"there is no study {name!r}; {_nearest(name, [s.name for s in all_studies()])}")


def find_studies(names: Iterable[str]) -> list[Study]:
    """The studies that names mean; a paper's name means all of its studies. No names mean every study."""
    names = list(names)
    if not names:
        return all_studies()
    found: dict[str, Study] = {}
    for name in names:
        try:
            chosen = [find_study(name)]
        except LookupError:
            if name not in papers():
                known = [s.name for s in all_studies()] + papers()
                raise LookupError(f"there is no study {name!r}; {_nearest(name, known)}") from None
            chosen = all_studies(name)
        found.update({s.name: s for s in chosen})
    return list(found.values())


def find_claim(name: str) -> Claim:
    """The claim with this id."""
    folder = name.split("/")[0]
    near = all_claims(folder=folder) if folder in papers() else []
    claims = {c.id: c for c in near}
    if name not in claims:
        claims = {c.id: c for c in all_claims()}
    if name not in claims:
        raise LookupError(f"there is no claim {name!r}; {_nearest(name, list(claims))}")
    return claims[name]


def claims_of(study: Study) -> list[Claim]:
    """The claims that the rows of ``study`` decide."""
    if study.paper not in papers():
        return []
    return [c for c in _load(study.paper)[1] if c.study == study.name]


def check_scale(scale: str) -> str:
    if scale not in SCALES:
        raise LookupError(f"there is no scale {scale!r}; {_nearest(scale, SCALES)}")
    return scale


def check_status(status: str) -> str:
    if status not in STATUSES:
        raise LookupError(f"there is no status {status!r}; {_nearest(status, STATUSES)}")
    return status


def _folders(paper: str | None) -> list[str]:
    known = papers()
    if paper is None:
        return known
    if paper not in known:
        raise LookupError(f"there is no paper {paper!r}; {_nearest(paper, known)}")
    return [paper]


@lru_cache(maxsize=64)
def _load(paper: str) -> tuple[tuple[Study, ...], tuple[Claim, ...]]:
    """The studies and claims of every module of a paper's folder; a module that cannot be imported is told of once."""
    package = importlib.import_module(f"{_HERE}.{paper.replace('-', '_')}")
    modules: list[ModuleType] = [package]
    for info in pkgutil.iter_modules(package.__path__):
        if info.name.startswith("_"):
            continue
        try:
            modules.append(importlib.import_module(f"{package.__name__}.{info.name}"))
        except Exception as error:  # one broken study must not hide the others
            warnings.warn(
                f"studies in {package.__name__}.{info.name} cannot be used: {type(error).__name__}: {error}",
                stacklevel=2,
            )
    studies = {s.name: s for m in modules for s in getattr(m, "STUDIES", ())}
    claims: dict[str, Claim] = {}
    for claim in (c for m in modules for c in declared_in(m)):
        if claims.setdefault(claim.id, claim) is not claim:
            raise ValueError(f"two claims of {paper} have the id {claim.id}")
    return tuple(studies.values()), tuple(attributed(paper, claims.values()))


def _nearest(name: str, known: Sequence[str]) -> str:
    if not known:
        return "there are none"
    known = list(dict.fromkeys(known))
    near = (
        difflib.get_close_matches(name.lower(), known, 3, 0.7)
        or difflib.get_close_matches(name.lower(), known, 3, 0.4)
        or [k for k in known if name.lower() in k.lower()][:3]
    )
    if near:
        return f"did you mean {' or '.join(near)}?"
    if len(known) <= 12:
        return f"there are {', '.join(known)}"
    return f"there are {len(known)}, e.g. {', '.join(known[:6])}"
