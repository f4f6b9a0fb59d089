"""The laboratory: models, data, training and the studies that reproduce the papers."""

from netvitals.lab.studies import run

__all__ = ["run"]
