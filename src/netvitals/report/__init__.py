"""One self-contained HTML file: what happened in words, the loss, and a panel for every vital sign."""

from netvitals.report.figure import figure
from netvitals.report.page import render, write

__all__ = ["figure", "render", "write"]
