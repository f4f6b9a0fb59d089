"""``netvitals view`` ends when it is told to, also while a tab is open."""

import http.client
import signal
import socket
import subprocess
import sys
import time

import pytest

from netvitals.capture import Measurement
from netvitals.runs import RunWriter

pytest.importorskip("uvicorn")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_view_ends_on_a_signal_while_tabs_are_open_and_says_so(tmp_path, programs, number):
    with RunWriter(tmp_path / "a") as writer:
        writer.write([Measurement(0, "loss", "model", "loss", 1.0)])
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = programs.Popen(
        [sys.executable, "-m", "netvitals", "view", str(tmp_path), "--port", str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        token = program.stdout.readline().partition("token=")[2].split()[0]
        tabs = []
        for _ in range(3):
            for _ in range(200):
                tab = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
                try:
                    tab.request(
                        "GET", "/api/events", headers={"Cookie": f"netvitals-{port}={token}; netvitals={token}"}
                    )
                    break
                except ConnectionRefusedError:
                    time.sleep(0.05)
            answer = tab.getresponse()
            assert answer.status == 200 and answer.readline().startswith(b"retry")
            tabs.append((tab, answer))
        program.send_signal(number)
        _, errors = program.communicate(timeout=30)
    finally:
        program.kill()
        program.wait()
    assert errors == "netvitals view ends\n"
    assert program.returncode == {signal.SIGINT: 0, signal.SIGTERM: -signal.SIGTERM}[number]
