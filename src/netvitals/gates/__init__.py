"""Gate density: which units carry gradient, and will that rise or fall?

**If unsure, use** :func:`measure` on a batch. A gate is |f'(x)|, the density is the share of gates above a threshold.

* :func:`measure`: the gates of every activation of a model; its report has ``margins`` and ``forecast``, the direction
  in which the density of each layer will move;
* :func:`will_collapse`: whether an optimizer and its schedule shrink the variance that decides this, before training;
* :func:`channels`: margins and crossing distances of every channel, of a checkpoint or over a run;
* :func:`channel_scores`: a score for every channel; not for pruning;
* :func:`predict`, :func:`margins`: the density that the mean and deviation of an activation's input imply;

The watcher is the vital sign ``gates``.
"""

from netvitals.gates.channels import SCORES as SCORES
from netvitals.gates.channels import ChannelScores, channel_scores
from netvitals.gates.collapse import Collapse, will_collapse
from netvitals.gates.collapse import GroupDecay as GroupDecay
from netvitals.gates.forecasting import GateForecast as GateForecast
from netvitals.gates.forecasting import GateOutlook
from netvitals.gates.forecasting import SiteOutlook as SiteOutlook
from netvitals.gates.forecasting import forecast as forecast
from netvitals.gates.measurement import checked_thetas as checked_thetas
from netvitals.gates.measurement import measure
from netvitals.gates.prediction import PREDICTORS as PREDICTORS
from netvitals.gates.prediction import Margins, margins, predict
from netvitals.gates.report import GateReport, SiteGates
from netvitals.gates.trends import ChannelCorrelations as ChannelCorrelations
from netvitals.gates.trends import ChannelStory, channels
from netvitals.gates.trends import SiteChannels as SiteChannels
from netvitals.gates.trends import TrendAgreement as TrendAgreement

__all__ = [
    "ChannelScores",
    "ChannelStory",
    "Collapse",
    "GateOutlook",
    "GateReport",
    "Margins",
    "SiteGates",
    "channel_scores",
    "channels",
    "margins",
    "measure",
    "predict",
    "will_collapse",
]
