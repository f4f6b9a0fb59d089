"""The live page: the report of a run, drawn anew while it is written."""

from netvitals.serve.app import create_app, runs_below

__all__ = ["create_app", "runs_below"]
