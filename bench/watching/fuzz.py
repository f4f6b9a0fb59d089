"""Random input for everything that reads: files, requests, specs, command lines. A sentence is fine, a traceback not.

python bench/watching/fuzz.py --examples 20000
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from netvitals import activations
from netvitals.capture import ArrayMeasurement, Measurement
from netvitals.cli import main as command_line
from netvitals.report.security import Guard
from netvitals.runs import RunWriter, open_run, recover
from netvitals.runs.checksum import Summary, pack, unpack
from netvitals.runs.write_queue import as_json, storable, text
from netvitals_lab import models

ANY = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.complex_numbers(),
    st.binary(max_size=20),
    st.text(max_size=20),
)
NAMES = st.text(st.characters(min_codepoint=0, max_codepoint=0x10FFFF, exclude_categories=()), max_size=30)
COMMANDS = (
    "report",
    "export",
    "recover",
    "activation",
    "vitals",
    "--help",
    "--version",
    "view",
    "claims",
    "frobnicate",
)
WORDS = st.one_of(
    st.sampled_from(
        ["--out", "--to", "csv", "json", "gelu", "relu", "--help", "--open", "--theta", "0.1", "-1", "nan"]
    ),
    st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=12),
)
SPECS = st.one_of(
    st.text(max_size=30),
    st.builds(
        lambda a, b, c: f"{a}{b}{c}",
        st.sampled_from(["gelu", "softplus", "relu2", "relu", "elu", "mlp", "gpt-micro", "resnet-mini"]),
        st.sampled_from([":", ",", "=", "-", "", ":-", "::"]),
        st.one_of(st.text(max_size=6), st.integers().map(str), st.floats().map(str)),
    ),
)


def _run_of_garbage(data: bytes, at: int) -> None:
    """A file with random bytes in the middle of a real run, or of nothing."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.sqlite"
        if at >= 0:
            with RunWriter(folder, flush_every=60) as writer:
                writer.write(
                    [Measurement(i, "v", "s", "m", 1.0) for i in range(9)],
                    [ArrayMeasurement(1, "v", "s", "a", np.ones(3))],
                )
            whole = bytearray(file.read_bytes())
            start = at % len(whole)
            whole[start : start + len(data)] = data
            data = bytes(whole)
        file.write_bytes(data)
        with contextlib.suppress(ValueError, OSError):
            run = open_run(file)
            run.meta, run.frame(), run.arrays(), run.findings(), run.steps
        with contextlib.suppress(ValueError, OSError):
            recover(file, Path(folder) / "saved")


def _written(step: Any, name: Any, value: Any) -> None:
    """Whatever is handed over, the run can be read afterwards and has as many measurements."""
    columns, _ = storable([Measurement(step, name, name, name, value)])
    assert len(columns) == 1
    text(name).encode(), as_json({"x": value, text(name): name})
    with tempfile.TemporaryDirectory() as folder:
        with RunWriter(folder, flush_every=60) as writer:
            writer.write([Measurement(step, name, name, name, value)])
            writer.note(name, value)
            assert writer.flush()
        assert open_run(folder).frame().height == 1


def _request(method: str, path: str, headers: list[tuple[bytes, bytes]], query: bytes) -> None:
    """No request without the token reaches the application."""
    reached, sent = [], []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        reached.append(scope)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "headers": headers, "query_string": query}
    asyncio.run(Guard(app, "a secret that is not guessed")(scope, lambda: None, send))  # type: ignore[arg-type]
    assert not reached and sent and sent[0]["status"] >= 400


def _blob(data: bytes, record: str) -> None:
    with contextlib.suppress(ValueError):
        unpack(data)
    with contextlib.suppress(ValueError):
        Summary.from_row(0, record)
    steps = np.frombuffer(data[: len(data) // 8 * 8], "<i8")
    back = unpack(pack(steps, steps % 7, steps * 0.5))
    assert (back[0] == steps).all()


def _spec(spec: str) -> None:
    with contextlib.suppress(ValueError, TypeError, LookupError):
        activations.get(spec)


def _model(spec: str) -> None:
    if any(len(part) > 3 for part in "".join(c if c.isdigit() else " " for c in spec).split()):
        return  # a model of a million layers is what was asked for, and is not built here
    with contextlib.suppress(ValueError, TypeError, LookupError):
        models.build(spec)


def _command(words: list[str]) -> None:
    if words[:1] == ["view"] and "--help" not in words:
        words = ["view", "nowhere-at-all"]
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        code: Any = 0
        try:
            command_line(words)
        except SystemExit as stop:
            code = stop.code
    assert code in (0, 1, 2, None), code
    assert "Traceback" not in errors.getvalue()


TARGETS: dict[str, tuple[Callable[..., None], dict[str, Any]]] = {
    "files": (_run_of_garbage, {"data": st.binary(max_size=300), "at": st.integers(-1, 100_000)}),
    "values": (_written, {"step": ANY, "name": st.one_of(NAMES, ANY), "value": ANY}),
    "requests": (
        _request,
        {
            "method": st.sampled_from(["GET", "HEAD", "POST", "TRACE", ""]),
            "path": st.text(max_size=20),
            "headers": st.lists(
                st.tuples(st.sampled_from([b"host", b"Host", b"origin", b"cookie", b"x"]), st.binary(max_size=30)),
                max_size=5,
            ),
            "query": st.one_of(st.binary(max_size=30), st.binary(max_size=20).map(lambda b: b"token=" + b)),
        },
    ),
    "blobs": (_blob, {"data": st.binary(max_size=200), "record": st.text(max_size=60)}),
    "activation specs": (_spec, {"spec": SPECS}),
    "model specs": (_model, {"spec": SPECS}),
    "command lines": (
        _command,
        {"words": st.builds(lambda c, w: [c, *w], st.sampled_from(COMMANDS), st.lists(WORDS, max_size=3))},
    ),
}


def fuzz(target: str, examples: int, *, derandomize: bool = True) -> None:
    """Run one target; the first input that fails is shrunk and raised."""
    function, inputs = TARGETS[target]
    options = settings(
        max_examples=examples,
        derandomize=derandomize,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    options(given(**inputs)(function))()


def main() -> int:
    """Fuzz every target for a while."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=20_000, help="a target")
    parser.add_argument("--only", choices=list(TARGETS))
    parsed = parser.parse_args()
    for target in [parsed.only] if parsed.only else TARGETS:
        begin = time.monotonic()
        fuzz(target, parsed.examples, derandomize=False)
        print(f"{target}: {parsed.examples} inputs, no traceback, {time.monotonic() - begin:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
