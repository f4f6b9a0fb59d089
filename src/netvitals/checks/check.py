"""What a check is: a question, and an answer that is *passed* only if it ran on data that could have failed it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Answer = Literal["failed", "passed", "not applicable", "not enough data"]
ANSWERS: tuple[Answer, ...] = ("failed", "passed", "not applicable", "not enough data")


@dataclass(frozen=True)
class Check:
    """A question that was asked of a run.

    Attributes:
        name: name of the check.
        question: what it asks.
        status: failed, passed, not applicable (why), or not enough data (what is missing).
        why: the reason for a status that is neither failed nor passed.
        evidence: the numbers it rests on.

    >>> print(Check("double softmax", "Does the loss get logits?", "not enough data", "it needs a cross-entropy"))
    Does the loss get logits? not enough data: it needs a cross-entropy
    """

    name: str
    question: str
    status: Answer
    why: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.question} {self.status}" + (f": {self.why}" if self.why else "")


class Question(NamedTuple):
    """What a check asks, and what it needs before it can be asked."""

    text: str
    needs: str


LOSS, STEP, PASS = "a loss with a graph", "a step of an optimizer", "a call of the watched model"
CHECKS: dict[str, Question] = {
    "double softmax": Question("Does the loss get logits, not probabilities?", "a cross-entropy"),
    "double sigmoid": Question("Does the loss get logits, not sigmoids?", "a binary cross-entropy with logits"),
    "missing log-softmax": Question("Does the negative log-likelihood get log-probabilities?", "a cross-entropy"),
    "softmax over one class": Question("Does every softmax have two classes or more?", "a softmax"),
    "softmax dimension": Question("Does no softmax run over the examples of the batch?", "a softmax"),
    "output activation": Question("Can the last activation reach the targets?", "a loss with targets"),
    "broadcast": Question("Do predictions and targets have the same shape?", "a loss with targets"),
    "loss sign": Question("Does a better fit lower the loss?", "a loss with a known sign"),
    "padding counted": Question("Is padding left out of the loss?", "token ids and labels"),
    "graph grows": Question("Does the graph of the loss keep its size from step to step?", LOSS),
    "no optimizer step": Question("Does the optimizer step?", "ten losses"),
    "gradients gone": Question("Does the optimizer find gradients when it steps?", STEP),
    "zero gradient": Question("Does every function on the way have a gradient?", LOSS),
    "unused layers": Question("Does the loss use every layer that the optimizer holds?", STEP),
    "stacked linear layers": Question("Is there an activation between the layers?", LOSS),
    "batch norm on few examples": Question("Does batch norm see more than one example?", PASS),
    "cut off": Question("Does the loss depend on what the optimizer moves?", STEP),
    "loss clamped": Question("Is the gradient clipped, and not the loss?", LOSS),
    "loss mismatch": Question("Does the loss get its arguments in order?", LOSS),
    "summed loss": Question("Is the loss a mean over the batch?", LOSS),
    "precision": Question("Are the trained weights kept in float32 or bfloat16?", STEP),
    "strong dropout": Question("Does dropout leave enough units?", PASS),
    "gradients carried over": Question("Does every step begin with empty gradients?", "three optimizer steps"),
    "not in the optimizer": Question("Does an optimizer hold every parameter that gets a gradient?", STEP),
    "not registered": Question("Are all layers registered in the model?", LOSS),
    "stale parameters": Question("Does the optimizer hold the parameters that the model uses?", STEP),
    "update lost": Question("Does every step change the weights?", STEP),
    "optimizer recreated": Question("Does the optimizer keep its state?", "three optimizer steps"),
    "tying lost": Question("Is the output layer tied to the embedding where it began as its copy?", LOSS),
    "train mode in evaluation": Question("Do evaluations run in eval mode?", "an evaluation"),
    "left in eval mode": Question("Does training run in training mode?", PASS),
    "constant labels": Question("Are there different labels?", "labels of three batches"),
    "sorted labels": Question("Are the labels mixed in each batch?", "class labels of five batches"),
    "label is input": Question("Do labels differ from the inputs at the same place?", "token ids and labels"),
    "label leak": Question("Does no single feature give the label?", "a table of features and labels"),
    "future leak": Question("Are later tokens hidden from earlier predictions?", "next-token training"),
    "order ignored": Question("Does the order of the tokens matter?", "next-token training"),
    "examples mixed": Question("Does each example's output depend on that example alone?", "a batch of examples"),
    "targets not scaled": Question("Are the targets of a size that the network can reach?", "regression targets"),
    "targets not finite": Question("Are all targets finite?", "a loss with targets"),
}
