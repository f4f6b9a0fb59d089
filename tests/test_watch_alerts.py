"""New findings are told while training goes on: to a function, to an address, in a panel."""

import http.server
import json
import socket
import threading
import warnings

import pytest
import torch
from torch import nn

import netvitals as nv


def train(steps=40, seed=0, **options):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    x, y = torch.randn(32, 4), torch.randint(2, (32,))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    with nv.watch(net, opt, every=1, **options) as watching:
        for step in range(steps):
            loss = nn.functional.cross_entropy(net(x), y)
            if step == 20:
                loss = loss * float("nan")
            opt.zero_grad()
            loss.backward()
            opt.step()
            watching.step(loss)
    return net


def test_each_finding_is_told_once_and_before_the_run_ends():
    told = []
    net = train(on_finding=lambda finding: told.append((finding.rule, finding.severity, torch.rand(1))))
    keys = [key[:2] for key in told]
    assert any(severity == "critical" for _, severity in keys) and len(keys) == len(set(keys))
    plain = train()
    assert all(
        torch.equal(a, b) or a.isnan().all() for a, b in zip(net.state_dict().values(), plain.state_dict().values())
    )


def test_a_listener_that_fails_does_not_end_training():
    def fails(finding):
        raise RuntimeError("no")

    with pytest.warns(RuntimeWarning, match="reporting a finding to on_finding failed: RuntimeError: no"):
        train(on_finding=fails)


def test_a_web_hook_is_sent_the_finding():
    got = []

    class Hook(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    train(on_finding=f"http://127.0.0.1:{server.server_address[1]}/hook")
    for thread in threading.enumerate():
        if thread.name == "netvitals-webhook":
            thread.join(10)
    server.shutdown()
    assert any(g["finding"]["severity"] == "critical" and g["text"] for g in got)


SECRET = "T0K3N/very-secret"


def posted(address):
    """What is said, and whether a thread ended in a traceback."""
    from netvitals.runs import Finding
    from netvitals.watching.alerts import listener_of

    broken = []
    hook, threading.excepthook = threading.excepthook, lambda given: broken.append(given.exc_value)
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            listener_of(address)(Finding("note", "layer0", "x"))
            for thread in threading.enumerate():
                if thread.name == "netvitals-webhook":
                    thread.join(10)
    finally:
        threading.excepthook = hook
    assert not broken, broken
    return " ".join(str(w.message) for w in said)


class Answering:
    """A server that answers every request the same way and counts them."""

    def __init__(self, status, **headers):
        self.asked = []
        outer = self

        class Hook(http.server.BaseHTTPRequestHandler):
            def answer(self):
                outer.asked.append(self.path)
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.send_response(status)
                for key, value in headers.items():
                    self.send_header(key, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_POST = do_GET = answer

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_of_a_web_hook_is_not_followed_and_said(status):
    with Answering(200) as other, Answering(status, Location=f"{other.address}/{SECRET}") as first:
        said = posted(f"{first.address}/{SECRET}")
        assert first.asked == [f"/{SECRET}"] and not other.asked
    assert f"the host answered {status}; redirects are not followed" in said and SECRET not in said
    assert first.address in said


@pytest.mark.parametrize("status", [400, 403, 404, 500])
def test_an_error_of_a_web_hook_is_said_without_its_secret(status):
    with Answering(status) as server:
        said = posted(f"{server.address}/{SECRET}?key={SECRET}")
    assert f"the host answered {status}" in said and "T0K3N" not in said


def test_a_web_hook_that_is_not_there_or_speaks_no_http_is_said_without_its_secret():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]

        def gibberish():
            taken, _ = silent.accept()
            taken.recv(1 << 16)
            taken.sendall(b"no http \r\n\r\n")
            taken.close()

        thread = threading.Thread(target=gibberish)
        thread.start()
        said = posted(f"http://127.0.0.1:{port}/{SECRET}")
        thread.join()
    assert "could not be sent to http://127.0.0.1" in said and SECRET not in said
    said = posted(f"http://127.0.0.1:{port}/{SECRET}")
    assert "ConnectionRefusedError" in said and SECRET not in said


@pytest.mark.parametrize(
    "address",
    ["htp://hooks.example/T0K3N", "http://", "https:///T0K3N", "http://hooks.example:port/T0K3N"]
    + ["http://hooks.example:99999/T0K3N", "http://[::1/T0K3N", "http://hooks.example/a b/T0K3N", "T0K3N", ""]
    + ["http://hooks.example/T0K3N\n", "http://hooks.example/\x00T0K3N", "http://me:T0K3N@hooks.example/x"]
    + ["http://hooks.example/T0K3Nü", "file:///etc/T0K3N", "javascript:T0K3N", "http://hooks.exämple/T0K3N"],
)
def test_a_malformed_address_is_refused_at_once_and_not_repeated(address):
    with pytest.raises(ValueError, match="must be the address of a web hook") as refused:
        nv.watch(nn.Linear(2, 2), on_finding=address)
    assert "T0K3N" not in str(refused.value)


def test_what_is_no_listener_is_refused():
    with pytest.raises(TypeError, match="a function of one finding or the address"):
        nv.watch(nn.Linear(2, 2), on_finding=3)


def test_a_panel_in_a_log_file_is_a_line_a_minute(capsys):
    train(panel=True)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("netvitals: step")]
    assert 1 <= len(lines) <= 2 and "loss" in lines[0]
