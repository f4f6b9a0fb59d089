"""What to do with curvature: words and designs from a measurement, low rank and bands of blocks, steps that use it."""

from netvitals.curvature.advice import design, distance, lowrank, steps

__all__ = ["design", "distance", "lowrank", "steps"]
