"""New findings are told while training goes on: to a function, to an address, in a panel."""

import http.server
import json
import threading

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

    with pytest.warns(RuntimeWarning, match="a finding could not be told: RuntimeError: no"):
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


def test_what_is_no_listener_is_refused():
    with pytest.raises(TypeError, match="a function of one finding or the address"):
        nv.watch(nn.Linear(2, 2), on_finding=3)


def test_a_panel_in_a_log_file_is_a_line_a_minute(capsys):
    train(panel=True)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("netvitals: step")]
    assert 1 <= len(lines) <= 2 and "loss" in lines[0]
