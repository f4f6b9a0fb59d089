"""The guard of the live page: who may ask, and what a browser may do with the answer.

The page listens on this machine only, but every page a browser has open can send requests there, and so can every user
of the machine. So a request needs a name of this machine in ``Host`` (a name that an attacker points here is refused),
no foreign ``Origin``, and the token that was printed at the start: once in the address, then in a cookie. Browsers
share cookies between ports, so its name has the port that the browser sees.
"""

from __future__ import annotations

import hmac
import re
import secrets
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

HOST = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::([0-9]{1,5}))?", re.IGNORECASE)  # of this machine
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"  # where a page brings none of its own
FRAME = "; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Guard:
    """An ASGI application in front of another."""

    def __init__(self, app: App, token: str | None = None) -> None:
        self.app = app
        self.token = token or secrets.token_urlsafe(24)
        self.ending = threading.Event()  # set when the server ends: streams end too

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # no websocket is answered
        headers = {key.decode("latin-1").lower(): value.decode("latin-1") for key, value in scope["headers"]}
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await _answer(send, *refusal)
            return
        query = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        given = [value for key, value in query if key == "token"]
        if given:
            if not self._is_token(given[0]):
                await _answer(send, 403, WRONG)
                return
            rest = urlencode([pair for pair in query if pair[0] != "token"])
            place = "/" + quote(scope["path"].lstrip("/")) + (f"?{rest}" if rest else "")
            cookie = f"{cookie_name(headers['host'])}={self.token}; Path=/; HttpOnly; SameSite=Lax"
            await _answer(send, 303, "", {"location": place, "set-cookie": cookie})
            return
        if not self._is_token(_cookie(headers)):
            await _answer(send, 403, WRONG)
            return
        await self.app(scope, self._until_ended(receive), _guarded(send))

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode())

    def _until_ended(self, receive: Receive) -> Receive:
        async def ended() -> Any:
            return {"type": "http.disconnect"} if self.ending.is_set() else await receive()

        return ended

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str, dict[str, str]] | None:
        if scope["method"] not in ("GET", "HEAD"):
            return 405, "This page can only be read.", {"allow": "GET, HEAD"}
        hosts = [value for key, value in scope["headers"] if key.lower() == b"host"]
        if len(hosts) != 1 or not HOST.fullmatch(headers["host"]):
            return 421, "This page answers to 127.0.0.1 and localhost only.", {}
        own = {f"{scheme}://{headers['host'].lower()}" for scheme in ("http", "https")}
        if headers.get("origin", min(own)).lower() not in own:
            return 403, "This page is not for other sites.", {}
        return None


WRONG = "The address needs the token that netvitals view printed when it started."


def cookie_name(host: str) -> str:
    """The name of the cookie at a ``Host``.

    >>> cookie_name("127.0.0.1:8722"), cookie_name("localhost")
    ('netvitals-8722', 'netvitals-80')
    """
    found = HOST.fullmatch(host)
    return f"netvitals-{(found and found[1]) or 80}"


def _cookie(headers: dict[str, str]) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(cookie_name(headers["host"]))
    except CookieError:
        return ""
    return found.value if found else ""


def _guarded(send: Send) -> Send:
    """Every answer with the headers, whoever wrote it."""

    async def with_headers(message: Any) -> None:
        if message["type"] == "http.response.start":
            present = {key.lower() for key, _ in message.get("headers", [])}
            more = {**HEADERS, "content-security-policy": POLICY + FRAME}
            message["headers"] = [
                *message.get("headers", []),
                *((k.encode(), v.encode("latin-1")) for k, v in more.items() if k.encode() not in present),
            ]
        await send(message)

    return with_headers


async def _answer(send: Send, status: int, sentence: str, headers: dict[str, str] | None = None) -> None:
    send = _guarded(send)
    sent = {"content-type": "text/plain; charset=utf-8", **(headers or {})}
    raw = [(key.encode(), value.encode("latin-1")) for key, value in sent.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": sentence.encode()})
