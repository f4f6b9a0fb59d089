"""One self-contained HTML file: what happened in words, the loss, and a panel for every vital sign."""

# for other packages of netvitals, not public
from netvitals._plot import Plot, Series
from netvitals.report.dead_directions import history_page as history_page
from netvitals.report.dead_directions import readout_page as readout_page
from netvitals.report.dead_directions import saved as saved
from netvitals.report.live import create_app as create_app
from netvitals.report.live.comparing import left_band as left_band
from netvitals.report.live.comparing import separated as separated
from netvitals.report.live.comparing import settings as settings
from netvitals.report.notebook import figure
from netvitals.report.page import render, write
from netvitals.report.page_shell import render_html as render_html
from netvitals.report.page_shell import write_html as write_html
from netvitals.report.terminal import RunPanel as RunPanel
from netvitals.report.terminal import body as body

__all__ = ["Plot", "Series", "figure", "render", "write"]
