"""How training is done: what goes in, what the loss asks of the outputs, and how the loop is written."""

from netvitals.vitals.practice.inputs import Inputs
from netvitals.vitals.practice.outputs import Outputs
from netvitals.vitals.practice.training import Training

__all__ = ["Inputs", "Outputs", "Training"]
