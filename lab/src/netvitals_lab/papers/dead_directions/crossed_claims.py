"""Claims on crossed blocks: what a learned skip costs, and whose dead signal passes cross-attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from netvitals_lab import Claim, Expected, Plot, Row, Series, Verdict, decide
from netvitals_lab.engine.judges import at_most, column, largest_gap, matches, some
from netvitals_lab.papers.dead_directions._judging import SLOPE, claim, predicted
from netvitals_lab.papers.dead_directions.crossed import NAME


def _exponents(rows: Sequence[Row]) -> Verdict:
    """All that were predicted, and zero where no signal is."""
    gap, worst = largest_gap(rows)
    absent = [r for r in rows if r["absent"]]
    if any(not r["zero"] for r in absent) or any(r["zero"] for r in rows if not r["absent"]):
        return decide(False, gap, note="an entry that should be exactly zero is not, or one is zero that should not be")
    facts = {"exponents": predicted(rows), "exact zeros": len(absent), "at": f"{worst['layer']} of {worst['readout']}"}
    return at_most(gap, SLOPE, "largest gap of an exponent", facts=facts)


def _behind(rows: Sequence[Row]) -> list[Row]:
    """The stream's amplitude behind the first block and after."""
    return [r for r in some(rows, readout="forward") if r["layer"] != "X0"]


def _of_a_block(rows: Sequence[Row]) -> Verdict:
    single = some(_behind(rows), blocks=1)
    backward = [
        r["measured"] - 2 for r in some(rows, readout="G", blocks=1, layer=("block0.q", "block0.k", "block0.v"))
    ]
    forward = [r["measured"] - 2 for r in single]
    worst = max(map(abs, forward + backward))
    return at_most(worst, SLOPE, "largest gap to 2: the amplitude behind one block, and G of its Q, K and V")


def _single_sided(rows: Sequence[Row]) -> Verdict:
    values = column(_behind(rows), "measured")
    return at_most(
        max(abs(v - 1) for v in values), SLOPE, "largest gap to 1 of the amplitude, weights of one side dead"
    )


def _signal(rows: Sequence[Row]) -> Verdict:
    memory, stream = (_behind(some(rows, signal=s)) for s in ("memory", "stream"))
    seen = column(memory, "measured")
    note = "largest gap to 2 behind a block when the memory alone has a dead signal; with the stream's alone it is zero"
    if not all(r["zero"] for r in stream):
        return decide(False, max(column(stream, "measured")), note="the stream's signal alone passes")
    return at_most(max(abs(v - 2) for v in seen), SLOPE, note)


def _apart(rows: Sequence[Row]) -> Verdict:
    deepest = max(r["blocks"] for r in rows)
    last = column(some(rows, readout="forward", blocks=deepest, layer=f"X{deepest}"), "measured")
    note = f"largest gap to 2 of the amplitude behind {deepest} blocks; if rates added it would be {2 * deepest}"
    return at_most(max(abs(v - 2) for v in last), SLOPE, note)


def _ladder(rows: Sequence[Row]) -> Plot:
    first = min(r["seed"] for r in rows)
    narrow = min(r["width"] for r in rows)
    mine = some(rows, seed=first, width=narrow, readout="G", activation="linear")
    series = [
        Series(name, [r["predicted"] for r in part], [r["measured"] for r in part])
        for name in dict.fromkeys(r["skips"] for r in mine)
        for part in (some(mine, skips=name),)
    ]
    return Plot("exponent of G, predicted by the shortest path", "measured", series)


def _claim(
    number: str,
    statement: str,
    expected: Expected,
    judge: Callable[[Sequence[Row]], Verdict],
    plot: Callable[[Sequence[Row]], Plot] | None = None,
    question: str = "",
    **uses: object,
) -> Claim:
    return claim(NAME, number, statement, expected, judge, matches(**uses), plot=plot, question=question)


CLAIMS = (
    _claim(
        "C15-projected",
        "a skip with a learned projection costs what a layer costs: rates follow the shortest weighted path",
        Expected(direction="within 0.05"),
        _exponents,
        _ladder,
        kind="projection",
    ),
    _claim(
        "C24-cross",
        "a cross-attention block whose two sides both carry the dead signal has forward and backward rate 2",
        Expected(value=2.0),
        _of_a_block,
        kind="cross",
        sides="both",
        signal="both",
    ),
    _claim(
        "C24-one-sided",
        "with the dead weights on one side only, the rate is a single factor",
        Expected(value=1.0),
        _single_sided,
        kind="cross",
        sides=("memory", "stream"),
        signal="both",
    ),
    _claim(
        "C24-signal",
        "cross-attention passes the memory's dead signal whatever the stream carries, and the stream's never",
        Expected(value=2.0),
        _signal,
        question="Is the one-sided case of cross-attention about the weights of one side (then the rate is 1) or about "
        "the signal of one side (then it is 2 for the memory's, and nothing passes of the stream's)?",
        kind="cross",
        sides="both",
        signal=("memory", "stream"),
    ),
    _claim(
        "C26-shared",
        "rates of cross-attention blocks that share a memory do not add along a chain",
        Expected(value=2.0),
        _apart,
        kind="cross",
        sides="both",
        signal="both",
    ),
    _claim(
        "C26-cross",
        "every exponent of G, A and the stream of cross-attention chains is predicted from the memory's order and the "
        "weights on the path",
        Expected(direction="within 0.05"),
        _exponents,
        kind="cross",
    ),
)
