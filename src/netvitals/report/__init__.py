"""One self-contained HTML file: what happened in words, the loss, and a panel for every vital sign."""

from netvitals.report.notebook import figure
from netvitals.report.page import render, write
from netvitals.report.plot import Plot, Series

__all__ = ["Plot", "Series", "figure", "render", "write"]
