"""A small server for folders of runs: the page once, then plain values, and word of every change."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from netvitals._extras import missing
from netvitals.report.live import api, comparing
from netvitals.report.live.api import to_json
from netvitals.report.live.run_index import OpenRun, Shelf, shown_name
from netvitals.report.page_shell import app_files, app_page
from netvitals.report.security import FRAME, Guard

LOOK_S = 0.5  # between looks at the folders
ALIVE_S = 15.0  # a silent stream says that it lives
JUDGE_S = 1.0  # between runs that are judged for the list
LIVE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src data:; connect-src 'self'"
)

MISSING = "<!doctype html><meta charset=utf-8><p>There is no such run here. <a href='/'>All runs</a></p>"


class Unclear(ValueError):
    """A request without what it needs."""


__all__ = ["create_app"]


def create_app(
    folder: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], token: str | None = None, *, judge: bool = True
) -> Any:
    """The ASGI application. Needs the extra ``serve``."""
    try:
        from starlette.applications import Starlette
        from starlette.requests import Request
        from starlette.responses import HTMLResponse, Response, StreamingResponse
        from starlette.routing import Route
    except ImportError:
        raise missing("the live page", "starlette") from None

    shelf = Shelf([folder] if isinstance(folder, str | os.PathLike) else folder)
    if judge:
        threading.Thread(target=_judge, args=(weakref.ref(shelf),), name="netvitals-judge", daemon=True).start()
    policy = {"Content-Security-Policy": LIVE_POLICY + FRAME}

    def page(request: Request) -> HTMLResponse:
        known = "name" not in request.path_params or (request.path_params["name"] or ".") in shelf.names()
        return HTMLResponse(app_page() if known else MISSING, 200 if known else 404, headers=policy)

    def file(request: Request) -> Response:
        name = request.path_params["name"]
        known = app_files()
        if name not in known:
            return Response("no such file", 404)
        kind, text = known[name]
        return Response(text, media_type=kind)

    def stated(make: Callable[[Request], Any]) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            try:
                return Response(to_json(make(request)), media_type="application/json")
            except Unclear as error:
                return Response(to_json({"error": str(error)}), 400, media_type="application/json")
            except LookupError as error:
                return Response(to_json({"error": str(error).strip("'\"")}), 404, media_type="application/json")
            except Exception as error:  # whatever a file holds, the server goes on
                why = str(error) or type(error).__name__
                sentence = shown_name(f"{request.query_params.get('run', 'The runs')} cannot be shown: {why}")
                return Response(to_json({"error": sentence}), 422, media_type="application/json")

        return answer

    def runs(_: Request) -> Any:
        return {"runs": shelf.rows()}

    def one(request: Request) -> OpenRun:
        return shelf.run(request.query_params.get("run") or ".")

    def head(request: Request) -> Any:
        run = one(request)
        with run.lock:
            return run.answer("head", lambda: _head(run, request.query_params.get("run") or "."))

    def metric(request: Request) -> Any:
        query = request.query_params
        key = (_needed(query, "vital"), _needed(query, "metric"), *_window(query))
        run = one(request)
        with run.lock:
            return run.answer(key, lambda: api.metric(run.numbers, *key))

    def site(request: Request) -> Any:
        query = request.query_params
        wanted, run = _needed(query, "site"), one(request)
        with run.lock:
            return api.site(run.numbers, wanted, *_window(query))

    def compare(request: Request) -> Any:
        query = request.query_params
        names = query.getlist("run")
        if not names:
            raise Unclear("the address of a comparison needs run= for each run")
        found = [shelf.run(name) for name in names]
        for run in found:
            with run.lock:
                _ = run.numbers.table
        return {
            "runs": names,
            "titles": [_title(run, name) for run, name in zip(found, names)],
            "settings": comparing.settings({n: r.numbers.meta for n, r in zip(names, found)}),
            "separated": comparing.separated(found[0].numbers.table, found[1].numbers.table) if len(found) > 1 else [],
            "metrics": comparing.common_metrics([r.numbers.table for r in found]),
        }

    def difference(request: Request) -> Any:
        query = request.query_params
        names, vital, name = query.getlist("run"), _needed(query, "vital"), _needed(query, "metric")
        if len(names) != 2:
            raise Unclear(f"a difference needs exactly two runs, each given as run=, got {len(names)}")
        first, second = (shelf.run(name) for name in names)
        return comparing.difference(first.numbers, second.numbers, vital, name)

    async def events(request: Request) -> StreamingResponse:
        return StreamingResponse(_changes(shelf, request), media_type="text/event-stream")

    return Guard(
        Starlette(
            routes=[
                Route("/", page),
                Route("/run/{name:path}", page),
                Route("/compare", page),
                Route("/app/{name}", file),
                Route("/api/runs", stated(runs)),
                Route("/api/head", stated(head)),
                Route("/api/metric", stated(metric)),
                Route("/api/site", stated(site)),
                Route("/api/compare", stated(compare)),
                Route("/api/difference", stated(difference)),
                Route("/api/events", events),
            ]
        ),
        token,
    )


def _head(run: OpenRun, name: str) -> dict[str, Any]:
    numbers = run.numbers
    worded = api.head(numbers, run.findings, title=_title(run, name), status=numbers.status)
    return worded | {"name": name, "version": numbers.summary.commits}


def _title(run: OpenRun, name: str) -> str:
    return name if name != "." else run.path.resolve().name


def _window(query: Any) -> tuple[int | None, int | None]:
    start, stop = query.get("start"), query.get("stop")
    try:
        return (None, None) if start is None or stop is None else (int(start), int(stop))
    except ValueError:
        raise Unclear(f"start and stop must be step numbers, got {start[:40]!r} and {stop[:40]!r}") from None


def _needed(query: Any, name: str) -> str:
    """An argument of a request."""
    if name not in query:
        raise Unclear(
            f"the address needs the argument {name}=, got {', '.join(f'{k}=' for k in query) or 'no argument'}"
        )
    return str(query[name])


async def _changes(shelf: Shelf, request: Any) -> AsyncIterator[str]:
    """The names of runs that have changed, as server-sent events."""
    loop = asyncio.get_running_loop()
    known, judged = await loop.run_in_executor(None, shelf.state), shelf.judged
    spoke = time.monotonic()
    yield f"retry: 2000\ndata: {to_json({'hello': len(known)})}\n\n"
    while not await request.is_disconnected():
        await asyncio.sleep(LOOK_S)
        now = await loop.run_in_executor(None, shelf.state)
        changed = [name for name, state in now.items() if known.get(name) != state]
        gone = [name for name in known if name not in now]
        verdicts = shelf.judged - judged
        known, judged = now, shelf.judged
        if changed or gone or verdicts:
            spoke = time.monotonic()
            yield f"data: {to_json({'changed': changed, 'gone': gone, 'judged': verdicts})}\n\n"
        elif time.monotonic() - spoke > ALIVE_S:
            spoke = time.monotonic()
            yield ": still here\n\n"


def _judge(shelf: weakref.ref[Shelf]) -> None:
    while (here := shelf()) is not None:
        began = time.monotonic()
        with contextlib.suppress(Exception):  # a folder that is gone for a moment
            here.judge()
        del here
        time.sleep(max(JUDGE_S, 3 * (time.monotonic() - began)))
