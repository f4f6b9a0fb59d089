"""Claims on crossed blocks: what a learned skip costs, and whose dead signal passes cross-attention."""

from __future__ import annotations

from collections.abc import Sequence

from netvitals_lab import Claims, Expected, Measured, Plot, Row, Series, at_most
from netvitals_lab.engine.judges import column, largest_gap, some
from netvitals_lab.papers.dead_directions._judging import SLOPE, predicted
from netvitals_lab.papers.dead_directions.crossed import NAME


def _exponents(rows: Sequence[Row]) -> Measured:
    """All that were predicted, and zero where no signal is."""
    gap, worst = largest_gap(rows)
    absent = [r for r in rows if r["absent"]]
    if any(not r["zero"] for r in absent) or any(r["zero"] for r in rows if not r["absent"]):
        return Measured(gap, "an entry that should be exactly zero is not, or one is zero that should not be", ok=False)
    facts = {"exponents": predicted(rows), "exact zeros": len(absent), "at": f"{worst['layer']} of {worst['readout']}"}
    return Measured(gap, "largest gap of an exponent", facts=facts)


def _behind(rows: Sequence[Row]) -> list[Row]:
    """The stream's amplitude behind the first block and after."""
    return [r for r in some(rows, readout="forward") if r["layer"] != "X0"]


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


claim = Claims("dead-directions", study=NAME)


@claim("C15-projected", at_most(SLOPE, "within 0.05"), uses={"kind": "projection"}, plot=_ladder)
def projected(rows: Sequence[Row]) -> Measured:
    """a skip with a learned projection costs what a layer costs: rates follow the shortest weighted path"""
    return _exponents(rows)


@claim("C24-cross", Expected(value=2.0), uses={"kind": "cross", "sides": "both", "signal": "both"})
def of_a_block(rows: Sequence[Row]) -> Measured:
    """a cross-attention block whose two sides both carry the dead signal has forward and backward rate 2"""
    single = some(_behind(rows), blocks=1)
    backward = [
        r["measured"] - 2 for r in some(rows, readout="G", blocks=1, layer=("block0.q", "block0.k", "block0.v"))
    ]
    forward = [r["measured"] - 2 for r in single]
    worst = max(map(abs, forward + backward))
    return Measured(
        worst, "largest gap to 2: the amplitude behind one block, and G of its Q, K and V", ok=worst <= SLOPE
    )


@claim("C24-one-sided", Expected(value=1.0), uses={"kind": "cross", "sides": ("memory", "stream"), "signal": "both"})
def single_sided(rows: Sequence[Row]) -> Measured:
    """with the dead weights on one side only, the rate is a single factor"""
    values = column(_behind(rows), "measured")
    return Measured(
        max(abs(v - 1) for v in values),
        "largest gap to 1 of the amplitude, weights of one side dead",
        ok=max(abs(v - 1) for v in values) <= SLOPE,
    )


@claim(
    "C24-signal",
    Expected(value=2.0),
    uses={"kind": "cross", "sides": "both", "signal": ("memory", "stream")},
    question="Is the one-sided case of cross-attention about the weights of one side (then the rate is 1) or about "
    "the signal of one side (then it is 2 for the memory's, and nothing passes of the stream's)?",
)
def signal(rows: Sequence[Row]) -> Measured:
    """cross-attention passes the memory's dead signal whatever the stream carries, and the stream's never"""
    memory, stream = (_behind(some(rows, signal=s)) for s in ("memory", "stream"))
    seen = column(memory, "measured")
    note = "largest gap to 2 behind a block when the memory alone has a dead signal; with the stream's alone it is zero"
    if not all(r["zero"] for r in stream):
        return Measured(max(column(stream, "measured")), "the stream's signal alone passes", ok=False)
    return Measured(max(abs(v - 2) for v in seen), note, ok=max(abs(v - 2) for v in seen) <= SLOPE)


@claim("C26-shared", Expected(value=2.0), uses={"kind": "cross", "sides": "both", "signal": "both"})
def apart(rows: Sequence[Row]) -> Measured:
    """rates of cross-attention blocks that share a memory do not add along a chain"""
    deepest = max(r["blocks"] for r in rows)
    last = column(some(rows, readout="forward", blocks=deepest, layer=f"X{deepest}"), "measured")
    note = f"largest gap to 2 of the amplitude behind {deepest} blocks; if rates added it would be {2 * deepest}"
    return Measured(max(abs(v - 2) for v in last), note, ok=max(abs(v - 2) for v in last) <= SLOPE)


@claim("C26-cross", at_most(SLOPE, "within 0.05"), uses={"kind": "cross"})
def every_exponent(rows: Sequence[Row]) -> Measured:
    """every exponent of G, A and the stream of cross-attention chains is predicted from the memory's order and the
    weights on the path"""
    return _exponents(rows)
