"""What a check is: a question, and an answer that is *passed* only if it ran on data that could have failed it."""

from __future__ import annotations

from collections import Counter
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


class Record:
    """What the checks of one run have seen: which of them ran, and which failed, with the evidence."""

    def __init__(self) -> None:
        self.failed: dict[str, dict[str, Any]] = {}
        self.asked: Counter[str] = Counter()  # check → how often it ran on data that could have failed it
        self.why: dict[str, str] = {}  # what could not be checked → the reason
        self.step = 0  # of losses that were given
        self.concluding = False  # a conclusion speaks of all steps, from the first one on

    def ask(self, name: str, times: int = 1) -> None:
        """Note that a check ran on data that could have failed it."""
        self.asked[name] += times

    def fail(self, name: str, **evidence: Any) -> None:
        """Note a failure; the first one of a check stands."""
        self.failed.setdefault(name, {"step": 0 if self.concluding else self.step, **evidence})


class Question(NamedTuple):
    """What a check asks, and what it needs before it can be asked."""

    text: str
    needs: str


LOSS, STEP, PASS = "a loss with a graph", "a step of an optimizer", "a call of the watched model"
# what every loop comes to in time
AWAITED = frozenset(
    {LOSS, STEP, PASS, "ten steps", "ten losses", "three optimizer steps", "an evaluation", "an extra pass"}
)
CHECKS: dict[str, Question] = {
    "double softmax": Question("Does the loss get logits, not probabilities?", "a cross-entropy"),
    "double sigmoid": Question("Does the loss get logits, not sigmoids?", "a binary cross-entropy with logits"),
    "missing log-softmax": Question("Does the negative log-likelihood get log-probabilities?", "a cross-entropy"),
    "infinite gradient": Question("Is every gradient finite where a function has a pole?", STEP),
    "equal units": Question("Do the units of a layer differ?", "ten steps"),
    "softmax over one class": Question("Does every softmax have two classes or more?", "a softmax"),
    "softmax dimension": Question("Does no softmax run over the examples of the batch?", "a softmax"),
    "output activation": Question("Can the last activation reach the targets?", "a loss with targets"),
    "labels out of range": Question("Are binary labels between 0 and 1?", "a binary cross-entropy with logits"),
    "class without weight": Question("Does every class count?", "a cross-entropy with class weights"),
    "blank among the labels": Question("Is the blank of CTC no label?", "a CTC loss"),
    "mask after the mean": Question("Is the loss masked before it is averaged?", "a loss times a mask"),
    "advantage with a gradient": Question("Is the advantage a constant of the policy's loss?", "a policy gradient"),
    "target with a gradient": Question("Is the bootstrapped target a constant?", "a loss on two predictions"),
    "broadcast": Question("Do predictions and targets have the same shape?", "a loss with targets"),
    "loss sign": Question("Does a better fit lower the loss?", "a loss with a known sign"),
    "padding counted": Question("Is padding left out of the loss?", "token ids and labels"),
    "graph grows": Question("Does the graph of the loss keep its size from step to step?", LOSS),
    "no optimizer step": Question("Does the optimizer step?", "ten losses"),
    "gradients gone": Question("Does the optimizer find gradients when it steps?", STEP),
    "step before backward": Question("Does backward() run before the optimizer steps?", STEP),
    "all gradients zero": Question("Does backward() give gradients that are not zero?", STEP),
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
    "gradients of another loss": Question(
        "Does every optimizer begin without gradients of another loss?", "steps of two optimizers"
    ),
    "freezing without effect": Question("Does everything that sets requires_grad freeze a parameter?", "parameters"),
    "shared module": Question("Is every layer of a list a layer of its own?", "a list of layers"),
    "not in the optimizer": Question("Does an optimizer hold every parameter that gets a gradient?", STEP),
    "not registered": Question("Are all layers registered in the model?", LOSS),
    "stale parameters": Question("Does the optimizer hold the parameters that the model uses?", STEP),
    "update lost": Question("Does every step change the weights?", STEP),
    "optimizer recreated": Question("Does the optimizer keep its state?", "three optimizer steps"),
    "tying lost": Question(
        "Is the output layer tied to the embedding where it began as its copy?",
        "an output layer of an embedding's shape",
    ),
    "train mode in evaluation": Question("Do evaluations run in eval mode?", "an evaluation"),
    "dropout in eval mode": Question("Does eval mode switch dropout off?", "an extra pass"),
    "teacher in train mode": Question("Do frozen teachers run without dropout?", "a frozen module with dropout"),
    "evaluation on another scale": Question("Are evaluation inputs as large as training inputs?", "an evaluation"),
    "left in eval mode": Question("Does training run in training mode?", "a dropout or norm layer"),
    "constant labels": Question("Are there different labels?", "labels of three batches"),
    "sorted labels": Question("Are the labels mixed in each batch?", "class labels of five batches"),
    "label is input": Question("Do labels differ from the inputs at the same place?", "token ids and labels"),
    "label leak": Question("Does no single feature give the label?", "a table of features and labels"),
    "future leak": Question("Are later tokens hidden from earlier predictions?", "next-token training"),
    "order ignored": Question("Does the order of the tokens matter?", "next-token training"),
    "input ignored": Question("Does every input change the output?", "a batch of examples"),
    "padding changes the output": Question("Does padding leave predictions alone?", "padded token ids"),
    "scrambled images": Question("Do pixels lie in their order?", "images of three colours"),
    "regression on classes": Question("Do class labels get a loss for classes?", "regression targets of three batches"),
    "examples mixed": Question("Does each example's output depend on that example alone?", "a batch of examples"),
    "targets not scaled": Question("Are the targets of a size that the network can reach?", "regression targets"),
    "replicas differ": Question("Do all ranks hold the same weights?", "several ranks"),
    "targets not finite": Question("Are all targets finite?", "a loss with targets"),
}
# what a loop may lack for good: the question is not about this loop
THINGS = frozenset(q.needs for q in CHECKS.values()) - AWAITED
