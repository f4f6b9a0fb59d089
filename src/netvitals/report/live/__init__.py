"""The page: what it asks for, what it is answered, and the small server that does so while a run is written."""

from netvitals.report.live.server import create_app

__all__ = ["create_app"]
