"""Where trials run: in worker processes of this machine, on a Ray cluster, or in the calling process."""

from __future__ import annotations

import difflib

from netvitals_lab.engine.workers.task import Engine, Outcome, TrialTask

ENGINES = ("local", "ray", "inline")

__all__ = ["ENGINES", "Engine", "Outcome", "TrialTask", "make_engine"]


def make_engine(name: str, *, jobs: int | None = None, address: str | None = None) -> Engine:
    """The engine called ``name``."""
    if name not in ENGINES:
        near = difflib.get_close_matches(name, ENGINES, 1, 0.4)
        raise ValueError(
            f"there is no engine {name!r}; "
            + (f"did you mean {near[0]}?" if near else f"there are {', '.join(ENGINES)}")
        )
    if jobs is not None and jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}")
    if address is not None and name != "ray":
        raise ValueError(f"an address belongs to the engine ray, not to {name}")
    if name == "ray":
        from netvitals_lab.engine.workers.ray import RayEngine

        return RayEngine(jobs, address)
    if name == "inline":
        from netvitals_lab.engine.workers.inline import InlineEngine

        return InlineEngine()
    from netvitals_lab.engine.workers.local import LocalEngine

    return LocalEngine(jobs)
