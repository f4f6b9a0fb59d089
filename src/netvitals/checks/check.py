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
    "double softmax": Question("Does the loss receive logits, not probabilities?", "a cross-entropy"),
    "double sigmoid": Question(
        "Does the loss receive logits, not sigmoid outputs?", "a binary cross-entropy with logits"
    ),
    "missing log-softmax": Question("Does the negative log-likelihood receive log-probabilities?", "a cross-entropy"),
    "infinite gradient": Question("Are gradients finite, also at a sqrt, log or division that receives zero?", STEP),
    "equal units": Question("Do the units of a layer have different weights?", "ten steps"),
    "softmax over one class": Question("Does every softmax run over at least two classes?", "a softmax"),
    "softmax dimension": Question("Does every softmax run over classes, not over the batch?", "a softmax"),
    "output activation": Question("Can the last activation produce the target values?", "a loss with targets"),
    "labels out of range": Question("Are binary labels between 0 and 1?", "a binary cross-entropy with logits"),
    "class without weight": Question(
        "Does every class have a positive weight in the loss?", "a cross-entropy with class weights"
    ),
    "blank among the labels": Question("Are the labels of the CTC loss different from the blank index?", "a CTC loss"),
    "mask after the mean": Question("Is the loss masked before it is averaged?", "a loss times a mask"),
    "advantage with a gradient": Question("Is the advantage detached in the policy loss?", "a policy gradient"),
    "target with a gradient": Question("Is the bootstrapped target free of gradients?", "a loss on two predictions"),
    "broadcast": Question("Do predictions and targets have the same shape?", "a loss with targets"),
    "loss sign": Question("Does the loss fall when the fit improves?", "a loss with a known sign"),
    "padding counted": Question("Does the loss leave out padding?", "token ids and labels"),
    "graph grows": Question("Does the autograd graph of the loss keep its size from step to step?", LOSS),
    "no optimizer step": Question("Is optimizer.step() called?", "ten losses"),
    "gradients gone": Question("Are there gradients when the optimizer steps?", STEP),
    "step before backward": Question("Does loss.backward() run before optimizer.step()?", STEP),
    "all gradients zero": Question("Does backward() give gradients that are not zero?", STEP),
    "zero gradient": Question("Does every function between parameters and loss have a useful gradient?", LOSS),
    "unused layers": Question("Does the loss depend on every layer in the optimizer?", STEP),
    "stacked linear layers": Question("Is there an activation function between the linear layers?", LOSS),
    "batch norm on few examples": Question("Does batch norm receive more than one example at a time?", PASS),
    "cut off": Question("Does the loss depend on the optimizer's parameters?", STEP),
    "loss clamped": Question("Is the loss free of clamping?", LOSS),
    "loss mismatch": Question("Does the loss receive its arguments in the right order?", LOSS),
    "summed loss": Question("Is the loss averaged over the batch?", LOSS),
    "precision": Question("Are the trained weights stored in float32 or bfloat16?", STEP),
    "strong dropout": Question("Does dropout keep enough units?", PASS),
    "gradients carried over": Question("Are gradients cleared before each step?", "three optimizer steps"),
    "gradients of another loss": Question(
        "Are the gradients of other losses cleared before an optimizer steps?", "steps of two optimizers"
    ),
    "freezing without effect": Question("Does every attempt to freeze a parameter take effect?", "parameters"),
    "shared module": Question("Is each entry of a layer list a separate layer?", "a list of layers"),
    "not in the optimizer": Question("Does an optimizer contain every parameter that gets a gradient?", STEP),
    "not registered": Question("Are all layers registered in the model?", LOSS),
    "stale parameters": Question("Does the optimizer hold the parameters that the model uses?", STEP),
    "update lost": Question("Does every optimizer step change the weights?", STEP),
    "optimizer recreated": Question("Is the optimizer created only once?", "three optimizer steps"),
    "tying lost": Question(
        "Do a tied embedding and output layer share one tensor?",
        "an output layer of an embedding's shape",
    ),
    "train mode in evaluation": Question("Do evaluations run in eval mode?", "an evaluation"),
    "dropout in eval mode": Question("Is dropout off in eval mode?", "an extra pass"),
    "teacher in train mode": Question("Do frozen teachers run without dropout?", "a frozen module with dropout"),
    "evaluation on another scale": Question(
        "Do evaluation inputs have the same scale as training inputs?", "an evaluation"
    ),
    "left in eval mode": Question("Does training run in train mode?", "a dropout or norm layer"),
    "constant labels": Question("Do the batches contain different labels?", "labels of three batches"),
    "sorted labels": Question("Are the classes mixed within each batch?", "class labels of five batches"),
    "label is input": Question("Do labels differ from the input tokens at the same position?", "token ids and labels"),
    "label leak": Question("Are the input columns free of the label?", "a table of features and labels"),
    "future leak": Question("Are later tokens hidden from earlier predictions?", "next-token training"),
    "order ignored": Question("Does the prediction depend on the order of the tokens?", "next-token training"),
    "input ignored": Question("Does every input affect the output?", "a batch of examples"),
    "padding changes the output": Question("Are predictions independent of padding?", "padded token ids"),
    "scrambled images": Question("Are the pixels of images in the right order?", "images of three colours"),
    "regression on classes": Question(
        "Are class labels trained with a classification loss?", "regression targets of three batches"
    ),
    "examples mixed": Question("Does each output depend only on its own example?", "a batch of examples"),
    "targets not scaled": Question(
        "Is the scale of the targets close to that of the network's outputs?", "regression targets"
    ),
    "replicas differ": Question("Do all ranks hold the same weights?", "several ranks"),
    "targets not finite": Question("Are all targets finite?", "a loss with targets"),
}
# what a loop may lack for good: the question is not about this loop
THINGS = frozenset(q.needs for q in CHECKS.values()) - AWAITED
