"""Which code a trial reaches, and a hash of what that code means."""

from netvitals_lab.engine.versions.source import code_version, forget, reached

__all__ = ["code_version", "forget", "reached"]
