"""Word of a new finding while training goes on: to a function of the user's, to an address, to the terminal."""

from __future__ import annotations

import json
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from netvitals._help import hint
from netvitals.capture import warn

if TYPE_CHECKING:
    from netvitals.findings import Findings
    from netvitals.runs import Finding
    from netvitals.watching.api import Watch

TIMEOUT_S = 10.0  # of an address that does not answer
LINE_S = 60.0  # between lines of a panel that is written to a file

Heard = Callable[["Finding"], Any]


def listener_of(on_finding: Any) -> Heard | None:
    """What is called with each new finding; None where nobody wants to know."""
    if on_finding is None or callable(on_finding):
        return on_finding
    if isinstance(on_finding, str):
        _check_address(on_finding)
        return lambda finding: _post(on_finding, finding)
    raise TypeError(
        f"on_finding= must be a function of one finding or the address of a web hook, got a {type(on_finding).__name__}"
    )


def _check_address(address: str) -> None:
    """Refuse what is no address; the sentence leaves the address out, because it is a secret."""
    try:
        parts = urlsplit(address)
        wrong = (
            "it must begin with http:// or https://" if parts.scheme not in ("http", "https")
            else "it names no host" if not parts.hostname
            else "a user name or password in it is not sent; use a path or query with the secret" if "@" in parts.netloc
            else "it has characters that an address cannot have (blanks, control characters, letters beyond ASCII)"
            if not all("!" <= c <= "~" for c in address)
            else ""
        )  # fmt: skip
        _ = parts.port  # a ValueError where it is none
    except ValueError:
        wrong = "its host or its port is malformed"
    if wrong:
        raise ValueError(f"on_finding must be the address of a web hook: {wrong} {hint('alert-failed')}")


class _Stay(urllib.request.HTTPRedirectHandler):
    """A web hook is sent to the address that was given and to no other."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _post(address: str, finding: Finding) -> None:
    body = json.dumps({"text": str(finding), "finding": finding.to_dict()}, default=str).encode()

    def send() -> None:
        request = urllib.request.Request(address, body, {"Content-Type": "application/json"}, method="POST")
        try:
            urllib.request.build_opener(_Stay).open(request, timeout=TIMEOUT_S).close()
        except urllib.error.HTTPError as error:
            moved = "; redirects are not followed, give the final address" if 300 <= error.code < 400 else ""
            _failed(address, f"the host answered {error.code}{moved}")
            error.close()
        except urllib.error.URLError as error:
            _failed(address, f"{type(error.reason).__name__} {error.reason}")
        except Exception as error:  # http.client raises errors that are no OSError
            _failed(address, type(error).__name__)

    threading.Thread(target=send, name="netvitals-webhook", daemon=True).start()


def _failed(address: str, why: str) -> None:
    """Warn; path and query of the address are a secret, and what an error says may repeat them."""
    parts = urlsplit(address)
    if address.partition(parts.netloc)[2].strip("/") and address.partition(parts.netloc)[2] in why:
        why = "an error"
    warn(f"a finding could not be sent to {parts.scheme}://{parts.netloc}/…: {why}", "alert-failed")


class LivePanel:
    """A panel in the terminal or the notebook that shows the watch as it stands; in a log file, a line a minute."""

    def __init__(self, watch: Watch) -> None:
        from rich.console import Console

        self._console = Console(emoji=False)
        self._live: Any = None
        self._spoke = -LINE_S
        if self._console.is_terminal or self._console.is_jupyter:
            from rich.live import Live

            self._live = Live(console=self._console, refresh_per_second=2, transient=False)
            self._live.start()

    def show(self, watch: Watch, found: Findings) -> None:
        """Draw it anew."""
        from netvitals.findings import table

        measurements = table(watch)
        if self._live is not None:
            from rich.panel import Panel

            from netvitals.report import body

            self._live.update(Panel(body(measurements, found), title=f"step {watch._step}"))
        elif time.monotonic() - self._spoke >= LINE_S:
            self._spoke = time.monotonic()
            loss = measurements.loss
            worded = f"{found[0].severity}: {found[0].what}" if found else "nothing alarming"
            last = "" if loss is None else f" loss {loss.last:.4g};"
            print(f"netvitals: step {watch._step};{last} {worded}", file=sys.stderr)

    def close(self) -> None:
        """Leave the last picture standing."""
        if self._live is not None:
            self._live.stop()
