"""Rules about how training is done: the loop, the loss, the data, the steps, the beginning."""

from netvitals.findings.practice import beginnings, inputs, limits, loop, loss, objective, precision, steps, turns

RULES = (
    *loss.RULES,
    *turns.RULES,
    *inputs.RULES,
    *loop.RULES,
    *objective.RULES,
    *precision.RULES,
    *beginnings.RULES,
    *steps.RULES,
    *limits.RULES,
)
