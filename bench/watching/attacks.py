"""What is left of a run, of its page and of its words when somebody or something works against them.

python bench/watching/attacks.py                # about two minutes; the table of docs/reliability.md
python bench/watching/attacks.py --times 10     # ten times as many flips, cuts and jumps
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import http.server
import os
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlencode

import numpy as np

from netvitals.capture import Measurement
from netvitals.report.live import create_app
from netvitals.report.live.run_index import Shelf
from netvitals.runs import Finding, RunWriter, open_run, recover, runs_below
from netvitals.watching.alerts import listener_of

COUNTING = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) "
COLUMNS = {"summary": "id, crc, record", "meta": "key, crc, value", "batch": "id, crc, segment, data"}
HOSTILE = {
    **{
        f"{table} is a view that never ends": f"DROP TABLE {table}; CREATE VIEW {table} AS {COUNTING}"
        f"SELECT {', '.join(f'x AS {c}' for c in columns.split(', '))} FROM c;"
        for table, columns in COLUMNS.items()
    },
    "trigger": "CREATE TRIGGER t AFTER INSERT ON summary BEGIN DELETE FROM batch; END;",
    "computed column": "DROP TABLE batch; CREATE TABLE batch (id INTEGER PRIMARY KEY, crc INTEGER, segment INTEGER,"
    " data BLOB GENERATED ALWAYS AS (zeroblob(900000000)) VIRTUAL);",
    "5,000 tables": "BEGIN;" + "".join(f"CREATE TABLE t{i} (x);" for i in range(5000)) + "COMMIT;",
    "blob of 100 MB": "UPDATE summary SET record = CAST(zeroblob(100000000) AS TEXT);",
}
HOSTS = [
    "evil.com@127.0.0.1",
    "evil.com@127.0.0.1:80",
    "evil.com",
    "127.0.0.1.evil.com",
    "127.0.0.1#evil.com",
    "",
    "[::1",
]
ADDRESSES = ["htp://h/T0K3N", "http://", "http://h:port/T0K3N", "http://[::1/T0K3N", "http://h/a b/T0K3N", "T0K3N"]
ALIVE = """
import sys, time
from netvitals.capture import Measurement
from netvitals.runs import RunWriter

writer = RunWriter(sys.argv[1])
writer.write([Measurement(0, "loss", "model", "loss", 1.0)])
writer.flush()
print("there", flush=True)
time.sleep(600)
"""


def write(path: Path, steps: int = 300, sites: int = 20) -> Path:
    with RunWriter(path, meta={"model": "MLP"}) as writer:
        for step in range(steps):
            writer.write([Measurement(step, "loss", "model", "loss", 1.0 / (1 + step))])
            writer.write([Measurement(step, "gates", f"l{i}", "density", 0.5) for i in range(sites)])
            if step % 50 == 49:
                writer.flush()
    return writer.path


def client(folder: Path | list[str]) -> object:
    from starlette.testclient import TestClient

    one = TestClient(create_app(folder, "t", judge=False), base_url="http://127.0.0.1", raise_server_exceptions=False)
    one.cookies.set("netvitals-80", "t")
    return one


def endings(folder: Path, _: int) -> str:
    """A view with three open tabs, ended by a signal."""
    write(folder / "a", 3)
    spent = []
    for number in (signal.SIGINT, signal.SIGTERM):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "netvitals", "view", str(folder), "--port", str(port)]
        view = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        token = view.stdout.readline().partition("token=")[2].split()[0]
        tabs = []
        while len(tabs) < 3:
            tab = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            with contextlib.suppress(ConnectionRefusedError):
                tab.request("GET", "/api/events", headers={"Cookie": f"netvitals-{port}={token}"})
                tabs.append((tab, tab.getresponse()))
            time.sleep(0.05)
        begin = time.monotonic()
        view.send_signal(number)
        _, said = view.communicate(timeout=60)
        assert said == "netvitals view ends\n", said
        spent.append(time.monotonic() - begin)
    return f"ended {max(spent):.1f} s after the signal with a message, 2 of 2 signals"


def others(folder: Path, _: int) -> str:
    """A list with a hostile run of every kind beside one good run."""
    write(folder / "good", 3)
    for name, script in HOSTILE.items():
        with contextlib.closing(sqlite3.connect(write(folder / name, 3))) as connection:
            connection.executescript(script)
    write(folder / "pipe", 3)
    os.mkfifo(folder / "pipe" / "run.sqlite-wal")
    begin = time.monotonic()
    rows = {row["name"]: row for row in Shelf([folder]).rows()}
    spent = time.monotonic() - begin
    told = sum("damage" in row for row in rows.values())
    assert "damage" not in rows["good"]
    return f"{told} of {len(HOSTILE) + 1} hostile runs refused, the good one shown, {spent:.1f} s for the list"


def browsers(folder: Path, _: int) -> str:
    """Two pages in one browser, and names of hosts that are not ours."""
    from starlette.testclient import TestClient

    write(folder / "a", 3)
    jar, open_ = {}, 0
    for port in (8722, 8723):
        one = TestClient(create_app(folder, f"t{port}", judge=False), base_url=f"http://127.0.0.1:{port}")
        name, _, rest = one.get(f"/?token=t{port}", follow_redirects=False).headers["set-cookie"].partition("=")
        jar[name] = rest.partition(";")[0]
    for port in (8722, 8723):
        one = TestClient(create_app(folder, f"t{port}", judge=False), base_url=f"http://127.0.0.1:{port}", cookies=jar)
        open_ += one.get("/api/runs").status_code == 200
    one = client(folder)
    passed = sum(one.get("/", headers={"host": host}).status_code == 200 for host in HOSTS)
    return f"{open_} of 2 pages open, {passed} of {len(HOSTS)} forged hosts admitted"


def hooks(folder: Path, _: int) -> str:
    """Web hooks with a secret in their address: redirected, refusing, absent and malformed."""
    asked: list[str] = []

    class Redirect(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.send_response(302 if "go" in self.path else 500)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        do_GET = do_POST

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Redirect)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base, broken, words = f"http://127.0.0.1:{server.server_address[1]}", [], []
    threading.excepthook = broken.append
    places = [f"{base}/go/T0K3N", f"{base}/T0K3N?key=T0K3N", "http://127.0.0.1:9/T0K3N", *ADDRESSES]
    for address in places:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                listener_of(address)(Finding("note", "", "x"))
            except ValueError as error:
                words.append(str(error))
            for thread in threading.enumerate():
                if thread.name == "netvitals-webhook":
                    thread.join(20)
            words += [str(w.message) for w in said]
    server.shutdown()
    threading.excepthook = threading.__excepthook__
    followed, repeated = asked.count("/elsewhere"), sum("T0K3N" in w for w in words)
    return (
        f"{len(words)} of {len(places)} failures reported, {repeated} repeat the secret, "
        f"{followed} redirects followed, {len(broken)} tracebacks"
    )


def killed(folder: Path) -> dict[str, bytes]:
    """The files of a run whose process is gone."""
    writer = RunWriter(folder / "alive", flush_every=60)
    for step in range(30):
        writer.write([Measurement(step, "v", "s", "m", float(step))])
        writer.flush()
    kept = {n: (folder / "alive" / n).read_bytes() for n in ("run.sqlite", "run.sqlite-wal", "run.sqlite-shm")}
    writer.close()
    return kept


def side_files(folder: Path, times: int) -> str:
    """A bit changed, or an end cut off, in the write-ahead log of a killed run."""
    kept, chance, place = killed(folder), random.Random(0), folder / "r"
    log = kept["run.sqlite-wal"]
    outcomes = {"told": 0, "equal": 0, "silent": 0}
    for number in range(300 * times):
        changed = bytearray(log)
        if number % 3:
            bit = chance.randrange(8 * len(log))
            changed[bit // 8] ^= 1 << bit % 8
        else:
            del changed[chance.randrange(len(log)) :]
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        for name, data in {**kept, "run.sqlite-wal": bytes(changed)}.items():
            (place / name).write_bytes(data)
        if number % 3 == 1:
            (place / "run.sqlite-shm").unlink()
        try:
            whole = open_run(place).frame()["value"].to_list() == [float(i) for i in range(30)]
            outcomes["equal" if whole else "silent"] += 1
        except ValueError:
            outcomes["told"] += 1
    told, equal, silent = outcomes.values()
    return f"{told} of {300 * times} damages reported, {equal} without effect, {silent} silent"


def clocks(folder: Path, times: int) -> str:
    """Jumps of the clock while a run is written, and after its process was killed."""
    child = subprocess.Popen([sys.executable, "-c", ALIVE, str(folder / "r")], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline()
    chance, now, wrong = random.Random(0), time.time, 0
    jumps = [chance.uniform(-1, 1) * 10 ** chance.uniform(0, 9) for _ in range(50 * times)]
    for alive in (True, False):
        if not alive:
            child.kill()
            child.wait()
            begin = time.monotonic()
            assert open_run(folder / "r").status == "interrupted"
            spent = time.monotonic() - begin
        for jump in jumps:
            time.time = lambda jump=jump: now() + jump  # type: ignore[assignment]
            wrong += open_run(folder / "r").status != ("running" if alive else "interrupted")
        time.time = now  # type: ignore[assignment]
    return f"{wrong} of {2 * len(jumps)} states wrong; interrupted {1000 * spent:.0f} ms after kill -9"


def cuts(folder: Path, times: int) -> str:
    """A closed run that is cut off at the end, and what the command that is named gets back."""
    data = write(folder / "whole").read_bytes()
    truth = open_run(folder / "whole").summary.measurements
    chance, named, back, intact = random.Random(0), 0, [], 0
    place = folder / "cut.sqlite"
    tries = 30 * times
    for _ in range(tries):
        place.write_bytes(data[: chance.randrange(len(data) // 2, len(data))])
        try:
            open_run(place).verify()
            intact += 1
        except ValueError as error:
            named += f"netvitals recover {place}" in str(error)
            shutil.rmtree(folder / "saved", ignore_errors=True)
            with contextlib.suppress(ValueError):
                back.append(recover(place, folder / "saved").measurements / truth)
    last = data[:-4096]
    place.write_bytes(last)
    shutil.rmtree(folder / "saved", ignore_errors=True)
    best = recover(place, folder / "saved").measurements
    return (
        f"{named} of {tries - intact} errors name the recover command, which recovers {100 * np.mean(back):.0f} % on "
        f"average of files cut in their second half, {best:,} of {truth:,} without the last page"
    )


def viewers(folder: Path, _: int) -> str:
    """Fifty that ask again and again while a run is written."""
    writer, stop, bad, asked = RunWriter(folder / "r"), threading.Event(), [], []
    one = client(folder)

    def ask() -> None:
        while not stop.is_set():
            answer = one.get("/api/runs")
            asked.append(1)
            if answer.status_code != 200 or "damage" in answer.text:
                bad.append(answer.text)

    threads = [threading.Thread(target=ask) for _ in range(50)]
    for thread in threads:
        thread.start()
    for step in range(300):
        writer.write([Measurement(step, "v", f"s{i}", "m", 1.0) for i in range(20)])
        time.sleep(0.005)
    stop.set()
    for thread in threads:
        thread.join()
    writer.close()
    kept = open_run(folder / "r").summary.measurements
    return f"{len(asked)} answers, {len(bad)} of them wrong; {kept:,} of 6,000 measurements on disk"


def requests(folder: Path, _: int) -> str:
    """Every address of the API with every choice of its arguments left out, and names of every sign."""
    source = write(folder / "one", 3)
    names = ["a|b", *(f"x{chr(c)}y" for c in range(1, 128) if chr(c) not in "/|")]
    for name in names:
        (folder / "runs" / name).mkdir(parents=True)
        os.link(source, folder / "runs" / name / "run.sqlite")
    one = client(folder / "runs")
    known = {"run": "a|b", "vital": "loss", "metric": "loss", "site": "model", "start": "x", "stop": "1"}
    keys, states = list(known), []
    for what in ("head", "metric", "site", "compare", "difference"):
        for choice in range(2 ** len(keys)):
            given = {k: known[k] for i, k in enumerate(keys) if choice >> i & 1}
            answer = one.get(f"/api/{what}?{urlencode(given)}")
            states.append(answer.status_code == 200 or " " in answer.json().get("error", ""))
            states[-1] &= answer.status_code < 500
    shown = sum(one.get("/api/head", params={"run": name}).json().get("title") == name for name in names)
    return (
        f"{sum(states)} of {len(states)} requests answered or refused with the missing argument; "
        f"{shown} of {len(names)} names shown"
    )


def deep(folder: Path, _: int) -> str:
    """A run below 1,500 folders."""
    write(folder / "near", 3)
    here = os.getcwd()
    os.chdir(folder)
    for _ in range(1500):
        os.mkdir("d")
        os.chdir("d")
    Path("run.sqlite").write_bytes((folder / "near" / "run.sqlite").read_bytes())
    os.chdir(here)
    begin = time.monotonic()
    found = len(runs_below(folder))
    rows = Shelf([folder]).rows()
    spent = time.monotonic() - begin
    os.chdir(folder)
    for _ in range(1500):
        os.chdir("d")
    os.unlink("run.sqlite")
    for _ in range(1500):
        os.chdir("..")
        os.rmdir("d")
    os.chdir(here)
    said = sum("too long for SQLite" in row.get("damage", "") for row in rows)
    return f"{found} of 2 runs listed in {spent:.1f} s, {said} with the reason why it cannot be opened there"


@contextlib.contextmanager
def place() -> Iterator[Path]:
    folder = tempfile.mkdtemp(prefix="netvitals-attacks-")
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


ATTACKS: dict[str, Callable[[Path, int], str]] = {
    "a signal to `netvitals view` with open tabs": endings,
    "a folder of runs from other people": others,
    "two pages in one browser, forged hosts": browsers,
    "web hooks that fail": hooks,
    "damaged side files of killed runs": side_files,
    "jumps of the clock": clocks,
    "closed runs that are cut off": cuts,
    "fifty viewers while a run is written": viewers,
    "requests without arguments, names with any character": requests,
    "a run below 1,500 folders": deep,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--only", default="", help="attacks whose name holds this")
    given = parser.parse_args()
    print("| attack | result |\n|---|---|")
    for name, attack in ATTACKS.items():
        if given.only in name:
            with place() as folder:
                print(f"| {name} | {attack(folder, given.times)} |", flush=True)


if __name__ == "__main__":
    main()
