"""``netvitals explain NAME [RUN]``: what a finding, a vital sign, or the code at the end of a warning means."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated

import typer

from netvitals._help import CODES, NOT_SEEN
from netvitals.cli import _groups

HEAD = """# Troubleshooting

`netvitals explain --codes` writes this page. Warnings and errors of netvitals end with a code, such as
`(netvitals explain no-loss)`. `netvitals explain CODE` prints the entry that is also on this page.

An error about an argument (*every= must be a whole number of steps, 1 or more, got 0*) has no code. Such an error says
what was given, what was expected and what to do. A warning never ends your training: the error inside netvitals was
caught, and `skipped` lists what was not measured. Set `NETVITALS_DEBUG=1` before a command to see the traceback of an
error. `netvitals doctor` checks the installation."""

PLACES = """## What could not be measured

`skipped` of a watch or checkup lists the places that could not be measured, with the reason. The findings list them
under *Not measured*. The possible reasons are:"""


def register(app: typer.Typer) -> None:
    app.command("explain", rich_help_panel=_groups.START)(explain_name)


def explain_name(
    name: Annotated[
        str,
        typer.Argument(
            help="Name of a finding or vital sign, or code of a warning. If RUN is given, a finding can also be "
            "named by its number in that run. With only the path of a run, all findings of the run are listed."
        ),
    ] = "",
    run: Annotated[Path | None, typer.Argument(help="Folder or .sqlite file of a run.")] = None,
    reference: Annotated[
        bool, typer.Option("--reference", help="Print the reference of all findings in Markdown.")
    ] = False,
    codes: Annotated[bool, typer.Option("--codes", help="Print the explanations of all codes in Markdown.")] = False,
) -> None:
    """Explain a finding, a vital sign or the code of a warning; without a name, list all of them."""
    if codes:
        typer.echo(troubleshooting(), nl=False)
    elif name == "not-seen":
        for reason, advice in _not_seen():
            typer.echo(f"{reason}\n  what to do: {advice}\n")
    elif name in CODES:
        entry = CODES[name]
        typer.echo(f"{entry.title}.\n\nwhy: {entry.why}\n\nwhat to do: {entry.advice}")
    elif reference:
        from netvitals import findings

        typer.echo(findings.reference(), nl=False)
    elif not name:
        _list()
    else:
        _explain_finding(name, run)


def _explain_finding(name: str, run: Path | None) -> None:
    from netvitals import findings, runs
    from netvitals.findings import explain, rule_named

    rules = {rule.name for rule in findings.RULES}
    if run is None and name not in rules and (Path(name).is_dir() or name.endswith(".sqlite")):
        for number, one in enumerate(findings.diagnose(runs.open_run(name)).all, 1):
            typer.echo(f"{number:3}  {one.severity:9} {one.rule}: {one.what}{one.dated}")
        typer.echo(f"netvitals explain NUMBER {name} says why.")
        return
    if run is None:
        if name.isdigit():
            raise ValueError(
                f"finding number {name} of which run? Give the folder of the run: netvitals explain {name} RUN"
            )
        if name in rules:
            typer.echo(explain(name))
        else:
            _explain_vital(name, rules)
        return
    all_findings = findings.diagnose(runs.open_run(run)).all
    if name.isdigit():
        if not 1 <= int(name) <= len(all_findings):
            raise ValueError(f"{run} has {len(all_findings)} findings, so there is no finding number {name}")
        chosen = [all_findings[int(name) - 1]]
    else:
        rule = rule_named(name).name
        chosen = [f for f in all_findings if f.rule == rule]
        if not chosen:
            typer.echo(f"{run} has no finding of {rule!r}.\n")
            typer.echo(explain(rule))
            return
    for one in chosen:
        typer.echo(explain(one.rule, one))


def _explain_vital(name: str, rules: set[str]) -> None:
    from netvitals import vitals
    from netvitals.cli.vitals import list_vitals

    if name in vitals.REGISTRY:
        list_vitals([name])
        return
    known = sorted({*rules, *vitals.REGISTRY, *CODES, "not-seen"})
    near = difflib.get_close_matches(name, known, 3, 0.5)
    meant = f"did you mean {' or '.join(near)}?" if near else "netvitals explain lists them"
    raise ValueError(f"there is no finding, vital sign or warning code {name!r}; {meant}")


def _list() -> None:
    from netvitals import findings, vitals

    typer.echo("Findings\n")
    for rule in findings.RULES:
        typer.echo(f"{rule.name:28} {rule.question}")
    typer.echo("\nVital signs\n")
    for kind in vitals.REGISTRY.values():
        typer.echo(f"{kind.name:28} {kind.title}")
    typer.echo("\nCodes of warnings and errors\n")
    for slug, entry in CODES.items():
        typer.echo(f"{slug:28} {entry.title}")
    typer.echo(f"{'not-seen':28} Places that could not be measured")


def troubleshooting() -> str:
    """``docs/troubleshooting.md``: an anchor for every code."""
    parts = [HEAD]
    for slug, entry in CODES.items():
        parts.append(f'<a id="{slug}"></a>\n\n## {entry.title}\n\n`netvitals explain {slug}`')
        parts.append(f"{entry.why}\n\n**What to do:** {entry.advice}")
    rows = [f"| {reason} | {advice} |" for reason, advice in _not_seen()]
    parts += [f'<a id="not-seen"></a>\n\n{PLACES}', "\n".join(["| why | what to do |", "|---|---|", *rows])]
    return "\n\n".join(parts) + "\n"


def _not_seen() -> list[tuple[str, str]]:
    from netvitals.capture import REASONS

    return [(reason, NOT_SEEN[kind]) for kind, reason in REASONS.items()]
