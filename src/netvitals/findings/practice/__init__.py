"""Rules about how training is done: the loop, the loss, the data, the steps, the beginning."""

from netvitals.findings.practice import beginnings, inputs, loop, loss, objective, precision, steps

RULES = (
    *loss.RULES,
    *inputs.RULES,
    *loop.RULES,
    *objective.RULES,
    *precision.RULES,
    *beginnings.RULES,
    *steps.RULES,
)
