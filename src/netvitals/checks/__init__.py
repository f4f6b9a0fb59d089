"""Exact evidence from the first steps: the loss's graph, parameters and optimizers, targets, passes, dependencies.

A check reads what the loop does and compares it with what must hold; it has no threshold that was fitted. It runs on
the first steps only and changes nothing: hooks are removed, and extra passes restore all that they touch.
"""

from netvitals.checks.check import ANSWERS as ANSWERS
from netvitals.checks.check import CHECKS, Check
from netvitals.checks.check import THINGS as THINGS
from netvitals.checks.check import Answer as Answer
from netvitals.checks.check import Record as Record
from netvitals.checks.loop import LoopChecks as LoopChecks
from netvitals.checks.loop import answers as answers
from netvitals.checks.loss_graph import LossNode as LossNode
from netvitals.checks.loss_graph import is_mean as is_mean
from netvitals.checks.loss_graph import losses_of as losses_of

__all__ = ["CHECKS", "Check"]
