"""Pictures of claims: the plots of :mod:`netvitals.report`, under the name that studies know."""

from netvitals.report import plot as drawing

# assigned rather than imported: how a picture is drawn must not make stored trials stale
Plot = drawing.Plot
Series = drawing.Series

__all__ = ["Plot", "Series"]
