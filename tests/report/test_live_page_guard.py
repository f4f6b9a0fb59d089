"""The live page lets nobody in who was not given its address, and no file stops it."""

from __future__ import annotations

import os
import time
from urllib.parse import quote

import pytest

from netvitals.capture import Measurement
from netvitals.report.live import create_app
from netvitals.runs import RunWriter, runs_below

testclient = pytest.importorskip("starlette.testclient")
HOME = "http://127.0.0.1:8722"


def write(path, count=3, **meta):
    with RunWriter(path, meta={"model": "MLP", **meta}) as writer:
        writer.write([Measurement(i, "loss", "model", "loss", 1.0 / (1 + i)) for i in range(count)])
    return writer.path


def client(folder, *, known=True, base=HOME, **options):
    one = testclient.TestClient(
        create_app(folder, "secret", judge=False), base_url=base, follow_redirects=False, **options
    )
    if known:
        one.cookies.set("netvitals-8722", "secret")
    return one


@pytest.fixture
def runs(tmp_path):
    write(tmp_path / "runs" / "a")
    return tmp_path / "runs"


@pytest.mark.parametrize(
    ("host", "status"),
    [("attacker.example", 421), ("127.0.0.1.attacker.example:8722", 421), ("", 421), ("127.0.0.1:8722", 200)]
    + [("localhost:8722", 200), ("[::1]:8722", 200), ("[::1", 421), ("localhost@attacker.example", 421)]
    + [("evil.com@127.0.0.1", 421), ("evil.com@127.0.0.1:8722", 421), ("evil.com:80@[::1]:8722", 421)]
    + [("127.0.0.1/evil.com", 421), ("127.0.0.1#.evil.com", 421), ("127.0.0.1?evil.com", 421), ("127.0.0.1:x", 421)]
    + [("127.0.0.1:8722 ", 421), ("127.0.0.1.:8722", 421), ("2130706433", 421), ("0.0.0.0:8722", 421)]
    + [("LOCALHOST:8722", 200), ("localhost:8722\\@evil.com", 421)],
)
def test_only_names_of_this_machine_are_answered(runs, host, status):
    assert client(runs).get("/", headers={"host": host}).status_code == status


@pytest.mark.parametrize(
    ("origin", "status"),
    [("http://attacker.example", 403), ("null", 403), ("http://127.0.0.1:8722", 200)]
    + [("http://evil.com@127.0.0.1:8722", 403), ("http://127.0.0.1:9999", 403), ("file://", 403), ("", 403)]
    + [("http://localhost:8722", 403), ("http://127.0.0.1:8722.evil.com", 403)],
)
def test_requests_of_other_sites_are_refused(runs, origin, status):
    assert client(runs).get("/", headers={"origin": origin}).status_code == status


@pytest.mark.parametrize(
    "place",
    ["/", "/run/a", "/api/runs", "/api/head?run=a", "/app/app.js", "/nowhere", "/?token=wrong", "/run/a?token="],
)
def test_without_the_token_nothing_is_told(runs, place):
    answer = client(runs, known=False).get(place)
    assert answer.status_code == 403 and "MLP" not in answer.text and "set-cookie" not in answer.headers
    assert "run/a" not in answer.text
    other = client(runs, known=False)
    other.cookies.set("netvitals-8722", "guess")
    assert other.get(place).status_code == 403


def test_the_token_becomes_a_cookie_and_leaves_the_address(runs):
    answer = client(runs, known=False).get("/run/a?token=secret&x=1")
    assert answer.status_code == 303 and answer.headers["location"] == "/run/a?x=1"
    assert answer.headers["set-cookie"] == "netvitals-8722=secret; Path=/; HttpOnly; SameSite=Lax"


def test_two_pages_in_one_browser_do_not_lock_each_other_out(runs):
    """A browser sends the cookies of a host to every port of it."""
    jar = {}
    for port, token in ((8722, "first"), (8723, "second")):
        one = testclient.TestClient(
            create_app(runs, token, judge=False), base_url=f"http://127.0.0.1:{port}", follow_redirects=False
        )
        name, _, rest = one.get(f"/?token={token}").headers["set-cookie"].partition("=")
        jar[name] = rest.partition(";")[0]
    assert len(jar) == 2
    for port, token in ((8722, "first"), (8723, "second")):
        one = testclient.TestClient(
            create_app(runs, token, judge=False), base_url=f"http://127.0.0.1:{port}", cookies=jar
        )
        assert one.get("/api/runs").status_code == 200


def test_two_host_headers_are_refused(runs):
    headers = [("host", "attacker.example"), ("host", "127.0.0.1:8722"), ("cookie", "netvitals-8722=secret")]
    assert client(runs, known=False).get("/", headers=headers).status_code == 421


def test_every_start_has_a_token_of_its_own(runs):
    first, second = create_app(runs, judge=False).token, create_app(runs, judge=False).token
    assert first != second and len(first) >= 32


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_the_page_can_only_be_read(runs, method):
    assert client(runs).request(method, "/").status_code == 405


@pytest.mark.parametrize(
    "place", ["/", "/run/a", "/run/none", "/nowhere", "/api/runs", "/app/app.js", "/?token=wrong", "/?token=secret"]
)
def test_every_answer_says_what_a_browser_may_do_with_it(runs, place):
    headers = client(runs).get(place).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "base-uri 'none'" in policy
    scripts = [part for part in policy.split(";") if "script-src" in part]
    assert all(part.strip() == "script-src 'self'" for part in scripts)
    assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"
    assert headers["x-frame-options"] == "DENY" and headers["cache-control"] == "no-store"


def test_a_link_out_of_the_folder_is_no_run_of_it(runs, tmp_path):
    write(tmp_path / "secret", model="hidden")
    (runs / "file").mkdir()
    os.symlink(tmp_path / "secret" / "run.sqlite", runs / "file" / "run.sqlite")
    os.symlink(tmp_path / "secret", runs / "folder")
    os.symlink(runs / "nothing", runs / "loose")
    assert runs_below(runs) == ["a"]
    for place in ("/run/file", "/run/folder", "/run/../secret", "/run/%2e%2e/secret", "/run//etc"):
        answer = client(runs).get(place)
        assert answer.status_code == 404 and "hidden" not in answer.text, place


@pytest.mark.parametrize("name", ["why?", "a#b", "50%", "a b", "a&b='x'", "<b>", "ü", "a/b", '"', b"bad\xff"])
def test_a_run_of_any_name_can_be_opened_from_the_list(tmp_path, name):
    folder = os.fsdecode(name) if isinstance(name, bytes) else name
    write(tmp_path / folder)
    one = client(tmp_path)
    (row,) = one.get("/api/runs").json()["runs"]
    head = one.get("/api/head", params={"run": row["name"]})
    assert head.status_code == 200 and head.json()["title"] == row["name"]
    link = "/run/" + "/".join(quote(part, safe="") for part in row["name"].split("/"))  # as the page makes it
    assert one.get(link).status_code == 200


def test_a_folder_that_is_a_run_is_listed_and_shown(tmp_path):
    write(tmp_path / "r")
    one = client(tmp_path / "r")
    assert [r["name"] for r in one.get("/api/runs").json()["runs"]] == ["."]
    assert one.get("/run/").status_code == 200  # what a browser makes of /run/.
    assert one.get("/api/head").json()["title"] == "r"


def test_a_damaged_run_is_a_row_with_its_reason(runs):
    data = bytearray(write(runs / "bad").read_bytes())
    data[data.index(b'"batches"') + 3] ^= 1
    (runs / "bad" / "run.sqlite").write_bytes(data)
    (runs / "text").mkdir()
    (runs / "text" / "run.sqlite").write_text("no database " * 100)
    (runs / "empty").mkdir()
    (runs / "empty" / "run.sqlite").touch()
    one = client(runs)
    rows = {r["name"]: r for r in one.get("/api/runs").json()["runs"]}
    assert set(rows) == {"a", "bad", "text", "empty"} and "damage" not in rows["a"]
    assert "is damaged" in rows["bad"]["damage"] and "is not a netvitals run" in rows["text"]["damage"]
    for name in ("bad", "text", "empty"):
        answer = one.get("/api/head", params={"run": name})
        assert answer.status_code == 422 and "cannot be shown" in answer.json()["error"], name
    assert one.get("/api/head", params={"run": "a"}).status_code == 200


def test_the_list_does_not_read_the_measurements(tmp_path):
    """200 runs of a million measurements: the summaries are read, so it takes no longer than with few."""
    import numpy as np

    from netvitals.runs.database import RunDatabase
    from netvitals.runs.write_queue import Columns, Pending

    ledger = RunDatabase(tmp_path / "runs" / "0", "refuse")
    keys = [("v", f"s{i}", "m") for i in range(1000)]
    for start in range(0, 1_000_000, 50_000):
        steps = np.repeat(np.arange(start // 1000, start // 1000 + 50), 1000)
        ledger.commit(Pending(columns=[Columns(steps, keys * 50, steps * 0.5)]))
    ledger.close()
    assert ledger.path.stat().st_size > 20e6
    for number in range(1, 200):
        (tmp_path / "runs" / str(number)).mkdir()
        os.link(ledger.path, tmp_path / "runs" / str(number) / "run.sqlite")
    one = client(tmp_path / "runs")
    one.get("/api/runs")
    begin = time.process_time()
    rows = one.get("/api/runs").json()["runs"]
    spent = time.process_time() - begin
    assert len(rows) == 200 and all(r["measurements"] == 1_000_000 for r in rows)
    assert spent < 1.0, f"{spent:.2f} s of CPU for 200 runs"
