"""Findings from the exact checks of the first steps: what failed, where, and what to change."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from netvitals.checks import CHECKS
from netvitals.findings.progress import progress
from netvitals.findings.rules import Context, Rule, names, percent
from netvitals.findings.series import Measurements
from netvitals.runs import Finding, Severity

Facts = Mapping[str, Any]


class Text(NamedTuple):
    """How a failed check is told."""

    severity: Severity
    what: Callable[[Facts], str]
    why: str
    fix: Callable[[Facts], str] | str


def _activation_fix(e: Facts) -> str:
    return f"Remove the {e['activation']} from the end of the model, and apply it only where you predict."


def _poles(functions: Mapping[str, int]) -> str:
    """Where which function stands at a pole."""
    words = {
        "div": "a division by 0",
        **{name: f"{name} at or beyond ±1" for name in ("acos", "asin", "atanh")},
        "log1p": "log1p at or below −1",
    }
    return ", ".join(
        f"{words.get(name, f'{name} of 0 or less')} ({count} {'entry' if count == 1 else 'entries'})"
        for name, count in functions.items()
    )


def _reached(e: Facts) -> str:
    reach = e.get("reach", 0.0)
    return f" It cannot fall below {reach:.3f}." if reach > 0.01 else ""


TEXTS: dict[str, Text] = {
    "double softmax": Text(
        "critical",
        lambda e: (
            f"Softmax is applied twice: the model returns probabilities and the loss applies log_softmax.{_reached(e)}"
        ),
        "cross_entropy expects logits. The second softmax flattens the probabilities and shrinks the gradient.",
        "Remove the softmax from the end of the model (cross_entropy applies log_softmax itself).",
    ),
    "double sigmoid": Text(
        "critical",
        lambda e: (
            f"The model ends in a {e['activation']}, and binary_cross_entropy_with_logits applies a sigmoid again."
        ),
        "The second sigmoid keeps predictions between 0.5 and 0.73, so the loss cannot fall to zero.",
        "Remove the sigmoid from the model, or use binary_cross_entropy.",
    ),
    "missing log-softmax": Text(
        "critical",
        lambda e: (
            f"{e.get('loss', 'nll_loss')} gets "
            + ("probabilities" if e.get("probabilities") else "logits")
            + " instead of log-probabilities."
        ),
        "The loss is then linear in the scores: it has no lower bound, or no logarithm.",
        lambda e: {
            "nll_loss": "Use cross_entropy on the logits, or end the model in log_softmax(dim=1).",
            "ctc_loss": "Call ctc_loss(logits.log_softmax(-1), ...).",
            "kl_div": "Call kl_div(logits.log_softmax(-1), target): the input is a logarithm, the target is not.",
        }[e.get("loss", "nll_loss")],
    ),
    "infinite gradient": Text(
        "critical",
        lambda e: (
            f"The {'loss' if e.get('loss') else 'gradient'} is not finite: {_poles(e['functions'])}."
            if "functions" in e
            else f"The loss turned from {e['before']:.3g} to NaN in one step: a likely cause is the infinite gradient "
            f"of {names(e['poles'])}, which the loss is made with."
        ),
        "One infinite entry makes every parameter that it reaches NaN.",
        "Keep the argument away from that point: add eps inside sqrt and log, clamp(-1 + 1e-6, 1 - 1e-6) before acos, "
        "use log_softmax, logsigmoid or xlogy for logarithms of probabilities.",
    ),
    "equal units": Text(
        "critical",
        lambda e: (
            f"All units of {names(e['parameters'])} {'are zero' if e['zero'] else 'have the same weights'}, "
            "as they had at the start."
        ),
        "Units with equal weights get equal gradients, so they never become different: the layer has one unit.",
        "Draw the weights at random, as PyTorch's layers do: torch.nn.init.kaiming_uniform_(weight).",
    ),
    "labels out of range": Text(
        "critical",
        lambda e: f"Labels of binary_cross_entropy_with_logits run from {e['low']:.3g} to {e['high']:.3g}, not 0 to 1.",
        "Outside 0..1 the loss has no lower bound: the logits grow for ever.",
        "With more than two classes use cross_entropy with one output a class; with two, labels 0 and 1.",
    ),
    "class without weight": Text(
        "critical",
        lambda e: f"Class {e['label']} has weight 0 in the loss, and there are examples of it.",
        "The model is never told of these examples.",
        "Give every class a positive weight; integer division (//) turns small weights into 0.",
    ),
    "blank among the labels": Text(
        "critical",
        lambda e: f"Labels of the CTC loss contain the blank ({e['blank']}).",
        "The blank separates labels; a label that is the blank can never be read out.",
        "Number the labels from 1 and add one output, or pass blank=number_of_labels.",
    ),
    "mask after the mean": Text(
        "critical",
        lambda e: (
            f"A loss that is a mean already is multiplied by a mask of shape {tuple(e['shape'])}: it masks nothing."
        ),
        "Every entry of the product is the mean over all places, masked ones too.",
        "Make the loss with reduction='none', multiply it by the mask, then divide the sum by mask.sum().",
    ),
    "advantage with a gradient": Text(
        "warning",
        lambda e: "The loss of the policy sends a gradient into the value estimate: the advantage is not detached.",
        "The critic then learns to please the policy's loss, not to predict returns.",
        "Use (returns - value).detach() in the loss of the policy.",
    ),
    "target with a gradient": Text(
        "warning",
        lambda e: "The bootstrapped target (reward and best next value) has a gradient.",
        "The network moves its targets towards its predictions, instead of predictions towards targets.",
        "Compute the target under torch.no_grad(), best with a target network.",
    ),
    "freezing without effect": Text(
        "warning",
        lambda e: (
            f"{names(e['parameters'])} {'is' if len(e['parameters']) == 1 else 'are'} meant to be frozen and "
            f"{'is' if len(e['parameters']) == 1 else 'are'} trained: "
            + (f"the attribute is called {e['word']}." if "word" in e else "requires_grad is set on a module.")
        ),
        "Python accepts any attribute; only requires_grad of a parameter stops its training.",
        "Call module.requires_grad_(False), or set requires_grad = False on each parameter.",
    ),
    "shared module": Text(
        "warning",
        lambda e: f"{e['container'] or 'A list of layers'} holds the same layer several times ({e['layers']} places).",
        "[layer] * n repeats one layer: all places share their weights.",
        "Make each layer anew: nn.ModuleList(make_layer() for _ in range(n)), or copy.deepcopy(layer).",
    ),
    "gradients of another loss": Text(
        "critical",
        lambda e: f"{e['optimizer']} steps on gradients that another loss left in its parameters ({e['steps']} steps).",
        "A backward pass through both networks fills the gradients of both; only one of them was cleared.",
        "Call zero_grad() of this optimizer right before the backward pass of its own loss.",
    ),
    "all gradients zero": Text(
        "critical",
        lambda e: f"Every gradient that backward() gives {e['optimizer']} is exactly zero.",
        "No unit passes a gradient: units are dead, weights are zero, or an output is clamped or saturated.",
        "Look at the last activation and at the initial weights first; then at the scale of the inputs.",
    ),
    "dropout in eval mode": Text(
        "warning",
        lambda e: "Dropout is active in eval mode: two passes on the same batch differ.",
        "Predictions are then random, and evaluations too low.",
        "Pass training=self.training to F.dropout, and dropout_p=p if self.training else 0.0 to attention.",
    ),
    "teacher in train mode": Text(
        "warning",
        lambda e: f"{names(e['parameters'])} is frozen and never changes, and runs with dropout.",
        "The targets that it gives change at random from call to call.",
        lambda e: f"Call model.{e['parameters'][0]}.eval() after model.train().",
    ),
    "evaluation on another scale": Text(
        "warning",
        lambda e: f"Inputs of an evaluation reach {e['evaluation']:.3g}, those of the training {e['training']:.3g}.",
        "The model meets inputs that it has not been trained on: a transform is missing on one side.",
        "Apply the same scaling and normalisation to training and evaluation data.",
    ),
    "input ignored": Text(
        "critical",
        lambda e: (
            "The output is the same for every example."
            if e["of"] == 1
            else f"Argument {e['argument']!r} does not change the output."
        ),
        "What an output does not depend on cannot be learned from.",
        "Follow the argument through forward(): integer casts, masks of zeros, dead units and a wrong axis lose it.",
    ),
    "padding changes the output": Text(
        "warning",
        lambda e: (
            f"With less padding the same texts get other outputs: they move by {e['moved']:.1f} times the spread "
            "between texts."
        ),
        "The prediction for a text depends on the longest text of its batch.",
        lambda e: (
            "Use pack_padded_sequence(..., enforce_sorted=False), or take the output at the last real token."
            if e["recurrent"]
            else "Pass src_key_padding_mask (True at padding) to the attention layers."
        ),
    ),
    "scrambled images": Text(
        "critical",
        lambda e: (
            f"Pixels three places apart are more alike ({e['far']:.2f}) than neighbours ({e['near']:.2f}): "
            "the image is scrambled."
        ),
        "Height × width × colour was read as colour × height × width with view or reshape.",
        "Use x.permute(0, 3, 1, 2), not x.view(n, 3, h, w).",
    ),
    "regression on classes": Text(
        "warning",
        lambda e: "The targets are one-hot rows of classes, and the loss is a squared or absolute error.",
        "Its gradient vanishes where a wrong class is certain, so training stalls.",
        "Use cross_entropy on the logits, with class numbers as targets.",
    ),
    "softmax over one class": Text(
        "critical",
        lambda e: f"A softmax runs over a dimension of size 1 (shape {tuple(e['shape'])}): its output is always 1.",
        "A constant has no gradient, so nothing before it learns.",
        "With one output use a sigmoid with binary_cross_entropy_with_logits; with several, softmax over the class dimension.",
    ),
    "softmax dimension": Text(
        "critical",
        lambda e: f"A softmax runs over dimension 0, the examples of the batch (shape {tuple(e['shape'])}).",
        "Probabilities then add up over the examples, and each example's output depends on the rest of the batch.",
        "Give the class dimension: softmax(x, dim=-1).",
    ),
    "output activation": Text(
        "critical",
        lambda e: (
            f"The model ends in a {e['activation']} before {e['loss']}.{_reached(e)}"
            if "beyond" not in e
            else f"The model ends in a {e['activation']}, which cannot reach {percent(e['beyond'])} of the targets "
            f"(they run from {e['low']:.3g} to {e['high']:.3g})."
        ),
        "The last activation restricts the outputs to a range that does not fit the loss.",
        _activation_fix,
    ),
    "broadcast": Text(
        "critical",
        lambda e: (
            f"Predictions of shape {tuple(e['prediction'])} are compared with targets as {tuple(e['compared'])}: each with every other."
        ),
        "Shapes (N, 1) and (N,) broadcast to (N, N). The best answer to such a loss is the mean of all targets.",
        "Make the shapes equal before the loss: prediction.squeeze(1), or target.unsqueeze(1).",
    ),
    "loss sign": Text(
        "critical",
        lambda e: "The loss has the wrong sign: every step makes the fit worse.",
        "A descent on minus the loss makes the error as large as it can.",
        "Negate the loss (nll_loss and cross_entropy have their minus already), or drop maximize=True from the optimizer.",
    ),
    "padding counted": Text(
        "warning",
        lambda e: f"{percent(e['share'])} of the labels are padding (token {e['token']}), and the loss counts them.",
        "The loss falls by predicting padding, and the real tokens get a smaller share of the gradient.",
        lambda e: f"Pass ignore_index={e['token']} to the loss, or set these labels to -100.",
    ),
    "graph grows": Text(
        "critical",
        lambda e: (
            f"The graph of the loss grows from step to step: {e['first']} nodes, then {e['last']} after {e['steps']} steps."
        ),
        "Each backward pass goes through all steps before it. Time and memory grow without end.",
        "Detach what is carried from step to step: hidden = hidden.detach(), total += loss.item().",
    ),
    "no optimizer step": Text(
        "critical",
        lambda e: (
            "No optimizer has stepped in 10 training steps"
            + ("." if e.get("backward") else ": backward() was not called either." if e.get("graph") else ".")
        ),
        "The weights stay as they were drawn.",
        "Call loss.backward() and optimizer.step() in each training step.",
    ),
    "gradients gone": Text(
        "critical",
        lambda e: (
            f"{e['optimizer']} finds no gradient when it steps: every .grad is None or zero, although backward() ran."
        ),
        "Gradients are cleared between backward() and step(), so no step changes anything.",
        "Call optimizer.zero_grad() before loss.backward(), not after it.",
    ),
    "step before backward": Text(
        "critical",
        lambda e: f"{e['optimizer']} steps between the forward pass and loss.backward().",
        "Each step follows old gradients or none. With two layers or more, loss.backward() then raises an error.",
        "Call optimizer.step() after loss.backward().",
    ),
    "gradients carried over": Text(
        "critical",
        lambda e: (
            f"Gradients are never cleared: {e['optimizer']} stepped {e['steps']} times on the sum of all gradients so far."
        ),
        "Every step then follows old gradients as well, which is a momentum that never ends.",
        "Call optimizer.zero_grad() before each backward pass (once per optimizer step with gradient accumulation).",
    ),
    "cut off": Text(
        "critical",
        lambda e: f"The loss does not depend on anything that {e['optimizer']} moves.",
        "The graph is cut between the parameters and the loss: detach(), .data, .item(), numpy, no_grad() or argmax.",
        "Look for one of these on the way from the model's output to the loss.",
    ),
    "zero gradient": Text(
        "critical",
        lambda e: (
            f"Every path from the loss to {names(e['parameters'])} goes through sign, round or floor, whose gradient is zero."
        ),
        "These parameters get a gradient of exactly zero and never change.",
        "Use a straight-through estimator, x + (x.round() - x).detach(), or a smooth function such as tanh.",
    ),
    "unused layers": Text(
        "warning",
        lambda e: (
            f"The loss does not use {names(e['parameters'])}: {percent(e['share'])} of the weights get no gradient."
        ),
        "These layers stay as they were drawn.",
        "Use them in forward(), or take a detach() out of the way; delete what is not needed.",
    ),
    "stacked linear layers": Text(
        "warning",
        lambda e: "The model has no activation between its layers: several linear layers are one linear layer.",
        "Without a nonlinearity only linear functions can be learned.",
        "Put an activation such as nn.ReLU() between the layers.",
    ),
    "batch norm on few examples": Text(
        "warning",
        lambda e: "Batch norm sees one example at a time.",
        "The statistics of a single example are noise, and differ from those that eval mode uses.",
        "Use larger batches, or GroupNorm, LayerNorm or InstanceNorm.",
    ),
    "loss clamped": Text(
        "warning",
        lambda e: (
            f"The loss is clamped: {percent(e['share'])} of the errors of a batch are beyond the limit and get no gradient."
            if e.get("share")
            else "The loss itself is clamped: beyond the limit its gradient is zero."
        ),
        "Clamping a loss does not limit the gradient; it stops learning on the batches that need it most.",
        "Clip the gradient: torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0) between backward() and step().",
    ),
    "loss mismatch": Text(
        "critical",
        lambda e: "The loss gets the labels as its prediction: the arguments are swapped.",
        "Losses take (prediction, target). Swapped, the gradient is that of another function.",
        "Call loss_fn(prediction, target).",
    ),
    "summed loss": Text(
        "warning",
        lambda e: f"The loss is a sum over {e['summed']} examples, and training suffers.",
        "Gradients are as many times larger as those of a mean, and so is the effective learning rate.",
        lambda e: f"Use reduction='mean', or divide the learning rate by {e['summed']}.",
    ),
    "precision": Text(
        "critical",
        lambda e: f"The weights themselves are float16: {names(e['parameters'])}.",
        "float16 holds three digits and nothing below 6e-8: small gradients and Adam's moments become zero.",
        "Keep the weights in float32 and use torch.autocast, or use bfloat16.",
    ),
    "strong dropout": Text(
        "warning",
        lambda e: f"A dropout layer drops {percent(e['dropout'])} of its inputs, and the loss does not fall.",
        "Too little of the signal is left in each step.",
        "Set p to 0.5 or less.",
    ),
    "not in the optimizer": Text(
        "critical",
        lambda e: (
            f"No optimizer holds {names(e['parameters'])}, though the loss has gradients for "
            f"{'it' if len(e['parameters']) == 1 else 'them'}."
        ),
        "No step changes these parameters: they stay as they were drawn.",
        "Pass model.parameters() to the optimizer after the model is complete, or add these parameters as a group. "
        "Set requires_grad = False on what shall stay.",
    ),
    "not registered": Text(
        "critical",
        lambda e: (
            f"{names(e['parameters'])} {'is' if len(e['parameters']) == 1 else 'are'} used by the model but not registered in it."
            if e["parameters"]
            else "Each pass makes new parameters: a layer is created in forward()."
        ),
        "Modules in a plain list, tuple or dict are missing from parameters(), state_dict() and .to().",
        "Create layers in __init__, and keep them in attributes, nn.ModuleList, nn.ModuleDict or nn.ParameterList.",
    ),
    "stale parameters": Text(
        "critical",
        lambda e: (
            f"The optimizer holds {e['held']} tensors that the model does not use; it lacks {names(e['parameters'])}."
        ),
        "The model's parameters were replaced after the optimizer was made, so its steps change tensors that nothing reads.",
        "Make the optimizer after the model has its final parameters.",
    ),
    "update lost": Text(
        "critical",
        lambda e: (
            f"Steps leave {names(e['parameters'])} bit for bit as {'it was' if len(e['parameters']) == 1 else 'they were'}, "
            "though there is a gradient and a learning rate."
            if not e.get("undone")
            else f"What a step changes in {names(e['parameters'])} is taken back before the next one."
        ),
        "The update is smaller than the precision of the tensor, or is written to a copy.",
        "Keep a float32 copy of the weights for the optimizer, or raise the learning rate; do not assign to .data of a copy.",
    ),
    "optimizer recreated": Text(
        "warning",
        lambda e: (
            f"{e['times']} optimizers were made for the same parameters: each begins without momentum and moments."
        ),
        "Adam and momentum average over steps. A new optimizer forgets what the last one knew.",
        "Make the optimizer once, before the loop.",
    ),
    "tying lost": Text(
        "warning",
        lambda e: f"{e['output']} begins as a copy of {e['embedding']}, but they are two tensors: the tie is lost.",
        "The two drift apart in training, and a saved model may restore only one.",
        lambda e: f"Assign the parameter itself: model.{e['output']}.weight = model.{e['embedding']}.weight.",
    ),
    "train mode in evaluation": Text(
        "warning",
        lambda e: (
            f"An evaluation runs in train mode: {e['count']} dropout or batch-norm layers are active ({names(e['layers'])})."
        ),
        "Dropout then removes units and batch norm uses the batch, so that what is measured is not the model.",
        "Call model.eval() before the evaluation and model.train() after it.",
    ),
    "left in eval mode": Text(
        "critical",
        lambda e: (
            "Training runs in eval mode, where spectral norm does not follow the weights."
            if e.get("spectral")
            else f"Training goes on in eval mode: all {e['layers']} dropout and batch-norm layers were switched off on the way."
        ),
        "In eval mode batch norm uses its running statistics and dropout does nothing.",
        "Call model.train() after each evaluation.",
    ),
    "constant labels": Text(
        "critical",
        lambda e: f"All labels are the same ({e['mode']}) in the first {e['batches']} batches.",
        "A constant output fits them, whatever the input is.",
        "Shuffle the data, DataLoader(..., shuffle=True), and check how the labels are loaded.",
    ),
    "sorted labels": Text(
        "warning",
        lambda e: (
            f"Each batch holds labels of few classes: their entropy is {e['within']:.2f} within a batch and {e['entropy']:.2f} overall."
        ),
        "The data are sorted by class. Each step then pulls towards the classes of its own batch.",
        "Shuffle the data: DataLoader(..., shuffle=True).",
    ),
    "label is input": Text(
        "critical",
        lambda e: f"{percent(e['share'])} of the labels are the input token at the same place.",
        "The model learns to copy. A language model must predict the next token.",
        "Shift the labels by one: inputs = tokens[:, :-1], labels = tokens[:, 1:].",
    ),
    "label leak": Text(
        "warning",
        lambda e: f"Feature {e['feature']} alone gives the label (correlation {e['correlation']:.4f}).",
        "The label, or something computed from it, is among the inputs.",
        lambda e: f"Drop column {e['feature']} from the inputs.",
    ),
    "future leak": Text(
        "critical",
        lambda e: "A prediction depends on tokens that come after it, and the label is the next token.",
        "The answer is visible in training, so the loss says nothing about generation.",
        "Use a causal mask: position t may attend to positions up to t only.",
    ),
    "order ignored": Text(
        "warning",
        lambda e: "The order of the tokens does not change the prediction.",
        "Attention without positions sees a set of tokens, not a sequence.",
        "Add position embeddings, along the dimension of the tokens.",
    ),
    "examples mixed": Text(
        "critical",
        lambda e: "In eval mode the output of one example changes with the other examples of its batch.",
        "A reshape or an operation over the wrong dimension mixes examples.",
        "Look for view or reshape where permute is needed, for batch_first, and for operations over dimension 0.",
    ),
    "targets not scaled": Text(
        "warning",
        lambda e: (
            f"Targets have mean {e['mean']:.3g} and standard deviation {e['spread']:.3g}; outputs begin near 0 ± 1."
        ),
        "Errors and gradients are as large as the targets, so the usual learning rates are too high or too low.",
        lambda e: f"Standardise the targets: y = (y - {e['mean']:.4g}) / {max(e['spread'], 1e-12):.4g}.",
    ),
    "replicas differ": Text(
        "critical",
        lambda e: (
            f"Ranks {e['ranks'][0]} and {e['ranks'][1]} hold different weights in "
            f"{names(e['parameters'])} ({len(e['parameters'])} of {e['of']} tensors)."
        ),
        "Data-parallel training adds up gradients of one model. Ranks that differ train several, and only one is saved.",
        "Seed and load the model before DistributedDataParallel wraps it, call the wrapped model (not model.module), "
        "and change weights or clip gradients on every rank alike.",
    ),
    "targets not finite": Text(
        "critical",
        lambda e: f"{percent(e['share'])} of the targets of a batch are NaN or infinite.",
        "One such target makes the loss and every gradient NaN.",
        "Drop or fill these targets before training.",
    ),
}


# checks that follow from labels, targets and the loss together
TOGETHER = frozenset(
    [
        "constant labels",
        "sorted labels",
        "output activation",
        "targets not scaled",
        "summed loss",
        "stacked linear layers",
        "batch norm on few examples",
        "precision",
        "strong dropout",
        "regression on classes",
        "infinite gradient",
    ]
)


def failures(facts: Facts, harm: bool, broke: Facts | None = None) -> dict[str, Facts]:
    """Checks that failed: those of single steps, and those that follow from labels, targets and the loss together.

    Args:
        facts: what :class:`netvitals.checks.LoopChecks` has collected.
        harm: whether training suffers; some facts are a mistake only then.
        broke: the step on which a loss that had not grown became NaN.
    """
    failed = dict(facts.get("failed", {}))
    labels, targets = facts.get("labels") or {}, facts.get("targets") or {}
    if labels.get("batches", 0) >= 3 and labels.get("batch_size", 0) >= 2:
        if labels["classes"] == 1:
            failed.setdefault("constant labels", {"step": 0, **labels})
        elif labels["batches"] >= 5 and labels["batch_size"] >= 8 and labels["within"] < 0.5 * labels["entropy"]:
            failed.setdefault("sorted labels", {"step": 0, **labels})
    if harm:
        if facts.get("summed", 0) >= 4:
            failed.setdefault("summed loss", {"step": 0, "summed": facts["summed"]})
        if facts.get("linear"):
            failed.setdefault("stacked linear layers", {"step": 0})
        if targets.get("one_hot") and set(facts.get("losses") or ()) <= {"mse", "l1"}:
            failed.setdefault("regression on classes", {"step": 0})
        if facts.get("half"):
            failed.setdefault("precision", {"step": 0, "parameters": facts["half"]})
        if facts.get("dropout", 0.0) >= 0.75:
            failed.setdefault("strong dropout", {"step": 0, "dropout": facts["dropout"]})
    if facts.get("poles") and broke is not None:
        failed.setdefault("infinite gradient", {**broke, "poles": facts["poles"]})
    if facts.get("single"):
        failed.setdefault("batch norm on few examples", {"step": 0})
    if facts.get("linear") and labels and not facts.get("narrow"):  # a linear classifier in several pieces
        failed.setdefault("stacked linear layers", {"step": 0})
    if targets.get("batches", 0) >= 3:
        if targets.get("constant"):
            failed.setdefault("constant labels", {"step": 0, "mode": f"{targets['mean']:.4g}", **targets})
        activation = targets.get("activation", "")
        if targets.get("beyond", 0.0) > 0.05 and activation:
            failed.setdefault("output activation", {"step": 0, "loss": "a regression loss", **targets})
        size, spread = targets.get("size", 0.0), targets.get("spread", math.nan)
        if size > 10 and not targets.get("constant") and harm:
            failed.setdefault("targets not scaled", {"step": 0, **targets, "spread": spread})
    return failed


def _broke(table: Measurements) -> Facts | None:
    """The step on which a loss that had not grown became NaN, where the inputs are finite."""
    loss = table.loss
    if loss is None or len(loss.finite) == len(loss.values):
        return None
    at = int(np.flatnonzero(~np.isfinite(loss.values))[0])
    inputs = [s for s in table.at("inputs", "max_abs", finite=False) if not np.isfinite(s.values).all()]
    if at < 2 or inputs or loss.values[max(0, at - 5) : at].max() > 1.5 * np.median(loss.values[: min(at, 10)]):
        return None
    return {"step": int(loss.steps[at]), "before": float(loss.values[at - 1])}


def asked(name: str, meta: Mapping[str, Any]) -> int:
    """How often a check ran on data that could have failed it."""
    facts = meta.get("checks") or {}
    if name in facts.get("failed", {}):
        return 1
    if not facts.get("steps"):
        return 0
    if name in ("constant labels", "sorted labels"):
        return int((facts.get("labels") or {}).get("batches", 0) >= (3 if name == "constant labels" else 5))
    if name == "targets not scaled":
        return int((facts.get("targets") or {}).get("batches", 0) >= 3)
    if name == "regression on classes":
        return int((facts.get("targets") or {}).get("batches", 0) >= 3)
    if name in ("summed loss", "precision", "strong dropout", "stacked linear layers", "batch norm on few examples"):
        return int(facts.get("steps", 0) >= 20)
    if name in ("loss clamped", "loss mismatch"):
        return int(bool(facts.get("losses")))
    return int((facts.get("asked") or {}).get("gradients gone" if name == "cut off" else name, 0))


def _rule(name: str, text: Text) -> Rule:
    def observe(context: Context) -> list[Finding]:
        return list(_found(context, name))

    return Rule(
        name=name,
        question=CHECKS[name].text,
        vital="training",
        needs=(),
        observe=observe,
        optional=False,
        null="the check passes",
        threshold="none: it holds or it does not",
        source="read off the loop itself in the first steps",
        asked=lambda meta: asked(name, meta),
        lacks=CHECKS[name].needs,
    )


def _found(context: Context, name: str) -> Iterator[Finding]:
    facts = context.table.meta.get("checks") or {}
    evidence = facts.get("failed", {}).get(name)
    if evidence is None and name in TOGETHER:
        evidence = failures(facts, progress(context.table).harm, _broke(context.table)).get(name)
    if evidence is not None:
        yield told(name, evidence, lambda: progress(context.table).harm)


def told(name: str, evidence: Facts, harm: Callable[[], bool]) -> Finding:
    """A failed check as a finding.

    Args:
        name: of the check.
        evidence: what it rests on.
        harm: asks whether training suffers; without harm some failures are notes.
    """
    text = TEXTS[name]
    sites = tuple(evidence.get("parameters", ()))
    meant = evidence.get("head") or evidence.get("small")  # it may be, unless training suffers
    alone = name == "dropout in eval mode" and not evidence.get("beside")  # dropout for the spread of predictions
    padded = name == "padding changes the output" and evidence.get("recurrent") and evidence["moved"] < 1
    mild = alone or ((meant or padded) and not harm())
    return Finding(
        "note" if mild else text.severity,
        sites[0] if sites else "",
        text.what(evidence),
        why=text.why,
        advice=text.fix if isinstance(text.fix, str) else text.fix(evidence),
        sites=sites,
        since=int(evidence.get("step", 0)),
        rule=name,
        vital="training",
    )


RULES = tuple(_rule(name, text) for name, text in TEXTS.items())
EXACT = frozenset(TEXTS)
