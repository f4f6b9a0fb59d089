"""``netvitals explain FINDING [RUN]``: the measurements, the rule, the threshold and its source, the measured error
rate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from netvitals.cli import _groups


def register(app: typer.Typer) -> None:
    app.command("explain", rich_help_panel=_groups.START)(explain_finding)


def explain_finding(
    finding: Annotated[
        str,
        typer.Argument(
            help="The name of a rule, or the number of a finding of RUN, from 1; a run alone lists its findings."
        ),
    ] = "",
    run: Annotated[Path | None, typer.Argument(help="A run: its folder, or the .sqlite file.")] = None,
    reference: Annotated[bool, typer.Option("--reference", help="Print docs/findings.md.")] = False,
) -> None:
    """Say why a finding was given: what was read, beyond which threshold, whose it is, and how often the rule is
    wrong."""
    from netvitals import findings, runs
    from netvitals.findings import explain, rule_named

    if reference:
        typer.echo(findings.reference(), nl=False)
        return
    if not finding:
        for rule in findings.RULES:
            typer.echo(f"{rule.name:26} {rule.question}")
        return
    known = {rule.name for rule in findings.RULES}
    if run is None and finding not in known and (Path(finding).is_dir() or finding.endswith(".sqlite")):
        for number, one in enumerate(findings.diagnose(runs.open_run(finding)).all, 1):
            typer.echo(f"{number:3}  {one.severity:9} {one.rule}: {one.what}{one.dated}")
        typer.echo(f"netvitals explain NUMBER {finding} says why.")
        return
    if run is None:
        if finding.isdigit():
            raise ValueError(f"which run has finding {finding}? give its folder: netvitals explain {finding} RUN")
        typer.echo(explain(finding))
        return
    found = findings.diagnose(runs.open_run(run)).all
    if finding.isdigit():
        if not 1 <= int(finding) <= len(found):
            raise ValueError(f"{run} has {len(found)} findings; there is no number {finding}")
        chosen = [found[int(finding) - 1]]
    else:
        name = rule_named(finding).name
        chosen = [f for f in found if f.rule == name]
        if not chosen:
            typer.echo(f"{run} has no finding of {name!r}.\n")
            typer.echo(explain(name))
            return
    for one in chosen:
        typer.echo(explain(one.rule, one))
