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


CLAMPED = "x.clamp(-1 + 1e-6, 1 - 1e-6)"
SAFE = {  # a call → how to write it where its argument may be at a pole
    "div": "x / (y + 1e-8)",
    "sqrt": "torch.sqrt(x + 1e-8)",
    "pow": "(x + 1e-8).pow(p)",
    "log": "torch.log(x + 1e-8)",
    **dict.fromkeys(("acos", "asin", "atanh"), CLAMPED),
}


def _poles(functions: Mapping[str, int]) -> str:
    """Which functions were evaluated at a pole, and how often."""
    words = {
        "div": "division by 0",
        **{name: f"{name} at or beyond ±1" for name in ("acos", "asin", "atanh")},
        "log1p": "log1p at or below −1",
    }
    return ", ".join(
        f"{words.get(name, f'{name} of 0 or less')} ({count} {'entry' if count == 1 else 'entries'})"
        for name, count in functions.items()
    )


def _pole_fix(e: Facts) -> str:
    functions = [*(e.get("functions") or e["poles"])]
    code = ", ".join(dict.fromkeys([SAFE[f] for f in functions if f in SAFE] or SAFE.values()))
    logarithm = " For logarithms of probabilities, use log_softmax, logsigmoid or xlogy."
    return f"Keep the input in a safe range: {code}." + logarithm * ("log" in functions)


def _reached(e: Facts) -> str:
    reach = e.get("reach", 0.0)
    return f" The loss cannot fall below {reach:.3f}." if reach > 0.01 else ""


def _leaked(e: Facts) -> str:
    correlation = e["correlation"]
    return f" (correlation {correlation:.4f})" if abs(correlation) > 0.999 else ""


TEXTS: dict[str, Text] = {
    "double softmax": Text(
        "critical",
        lambda e: f"Softmax is applied twice: by the model, and again by the log_softmax inside the loss.{_reached(e)}",
        "cross_entropy expects logits. A second softmax moves the probabilities closer together and shrinks the "
        "gradient.",
        "Remove the softmax from the end of the model: cross_entropy applies log_softmax itself.",
    ),
    "double sigmoid": Text(
        "critical",
        lambda e: (
            f"The model ends in a {e['activation']}, and binary_cross_entropy_with_logits applies another sigmoid."
        ),
        "The second sigmoid limits predictions to the range 0.5 to 0.73, so the loss cannot reach zero.",
        lambda e: f"Remove the {e['activation']} from the end of the model, or use binary_cross_entropy instead.",
    ),
    "missing log-softmax": Text(
        "critical",
        lambda e: (
            f"{e.get('loss', 'nll_loss')} expects log-probabilities but receives "
            + ("probabilities." if e.get("probabilities") else "logits.")
        ),
        "Without the logarithm the loss is linear in the scores, so it does not fit probabilities to the labels.",
        lambda e: {
            "nll_loss": "Use cross_entropy(logits, labels), or end the model in log_softmax(x, dim=1).",
            "ctc_loss": "Pass logits.log_softmax(-1) to ctc_loss.",
            "kl_div": "Pass log-probabilities first and probabilities second: kl_div(logits.log_softmax(-1), target).",
        }[e.get("loss", "nll_loss")],
    ),
    "infinite gradient": Text(
        "critical",
        lambda e: (
            f"The {'gradient' if not e.get('loss') else 'loss'} is not finite because of {_poles(e['functions'])}."
            if "functions" in e
            else f"The loss went from {e['before']:.3g} to NaN in one step. The loss uses "
            f"{names(e['poles'])}, whose gradient was probably infinite."
        ),
        "One infinite gradient entry turns every weight it reaches into NaN.",
        _pole_fix,
    ),
    "equal units": Text(
        "critical",
        lambda e: (
            f"All weights of {names(e['parameters'])} are zero, and training does not change that."
            if e["zero"]
            else f"All units of {names(e['parameters'])} have the same weights, and training does not change that."
        ),
        "Units with equal weights get equal gradients, so they stay equal. A layer of equal units can do no more than one unit.",
        "Initialise the weights at random, for example with torch.nn.init.kaiming_uniform_(layer.weight).",
    ),
    "labels out of range": Text(
        "critical",
        lambda e: (
            "binary_cross_entropy_with_logits needs labels between 0 and 1. "
            f"The labels range from {e['low']:.3g} to {e['high']:.3g}."
        ),
        "With labels outside 0 to 1 the loss has no lower bound, so the logits grow without limit.",
        "For two classes, use the labels 0 and 1. For more classes, use cross_entropy with one output per class.",
    ),
    "class without weight": Text(
        "critical",
        lambda e: f"Class {e['label']} has weight 0 in the loss, although the batch contains examples of this class.",
        "Examples of a class with weight 0 have no effect on training.",
        "Give every class a positive weight. If the class weights are computed with integer division (//), "
        "use / instead.",
    ),
    "blank among the labels": Text(
        "critical",
        lambda e: f"The labels of the CTC loss contain the blank index {e['blank']}.",
        "CTC decoding removes blanks, so the model can never predict a label that equals the blank index.",
        "Reserve an index for the blank: number the labels from 1, or pass blank=num_labels. "
        "With a blank the model needs num_labels + 1 outputs.",
    ),
    "mask after the mean": Text(
        "critical",
        lambda e: (
            f"An already averaged loss is multiplied by a mask of shape {tuple(e['shape'])}. "
            "Masked positions still count in the loss."
        ),
        "The average already includes the masked positions, so the multiplication only rescales the loss.",
        "Compute the loss with reduction='none', then use (loss * mask).sum() / mask.sum().",
    ),
    "advantage with a gradient": Text(
        "warning",
        lambda e: "The policy loss sends a gradient into the value network: the advantage is not detached.",
        "With this gradient the value network learns to lower the policy loss instead of predicting returns.",
        "Detach the advantage in the policy loss: advantage = (returns - value).detach().",
    ),
    "target with a gradient": Text(
        "warning",
        lambda e: "The bootstrapped target (reward plus value of the next state) carries a gradient.",
        "Each step also moves the targets towards the predictions, which makes training unstable.",
        "Compute the target under torch.no_grad(), preferably with a separate target network.",
    ),
    "freezing without effect": Text(
        "warning",
        lambda e: (
            f"{names(e['parameters'])} {'are' if len(e['parameters']) > 1 else 'is'} still trained: the code sets "
            f"the attribute {e['word']}, which has no meaning in PyTorch."
            if "word" in e
            else f"{names(e['parameters'])} {'are' if len(e['parameters']) > 1 else 'is'} still trained: the code sets "
            "requires_grad on a module, which PyTorch ignores."
        ),
        "Python accepts any attribute name without an error. Only requires_grad of a parameter stops its training.",
        "Call module.requires_grad_(False), or set requires_grad = False on each parameter.",
    ),
    "shared module": Text(
        "warning",
        lambda e: (
            f"The {e['layers']:.0f} entries of {e['container'] or 'a list of layers'} are the same layer, so they share "
            "one set of weights."
        ),
        "In Python, [layer] * n repeats a reference to one layer and makes no copies.",
        "Create a new layer for each entry: nn.ModuleList(make_layer() for _ in range(n)). "
        "To copy an existing layer, use copy.deepcopy(layer).",
    ),
    "gradients of another loss": Text(
        "critical",
        lambda e: (
            f"On {e['steps']} steps, {e['optimizer']} also used gradients that the backward pass of another loss had "
            "left."
        ),
        "A backward pass through two networks adds gradients to both. In this loop, the gradients of only one network are cleared.",
        lambda e: f"Call {e['optimizer']}.zero_grad() directly before the backward pass of the loss it minimises.",
    ),
    "all gradients zero": Text(
        "critical",
        lambda e: f"backward() gives every parameter of {e['optimizer']} a gradient of exactly zero.",
        "No gradient reaches the weights. Typical causes are dead units, all-zero weights, and a clamped or saturated "
        "output.",
        "Print the outputs of the last layers and their initial weights: look for constants and zeros. "
        "Then check the scale of the inputs.",
    ),
    "dropout in eval mode": Text(
        "warning",
        lambda e: "Dropout is active in eval mode: two passes on the same batch give different outputs.",
        "Predictions become random, and evaluation scores are too low.",
        "Pass training=self.training to F.dropout. "
        "For scaled_dot_product_attention, pass dropout_p=p if self.training else 0.0.",
    ),
    "teacher in train mode": Text(
        "warning",
        lambda e: f"The frozen module {names(e['parameters'])} runs with active dropout.",
        "The targets from a teacher with dropout change at random from call to call.",
        lambda e: f"Call model.{e['parameters'][0]}.eval() after model.train().",
    ),
    "evaluation on another scale": Text(
        "warning",
        lambda e: (
            f"Evaluation inputs reach {e['evaluation']:.3g}, while training inputs reach only {e['training']:.3g}."
            if e["evaluation"] > e["training"]
            else f"Evaluation inputs reach only {e['evaluation']:.3g}, while training inputs reach {e['training']:.3g}."
        ),
        "The model is evaluated on a scale it was not trained on. One of the two data pipelines probably lacks a "
        "transform.",
        "Apply the same scaling and normalisation to training and evaluation data.",
    ),
    "input ignored": Text(
        "critical",
        lambda e: (
            "The model gives the same output for every example."
            if e["of"] == 1
            else f"The argument {e['argument']!r} of forward() has no effect on the output."
        ),
        "A model cannot learn from an input that does not affect its output.",
        "Trace the input through forward(). Common causes are integer casts, all-zero masks, dead units and a "
        "reduction over the wrong dimension.",
    ),
    "padding changes the output": Text(
        "warning",
        lambda e: (
            f"Padding changes the output for a text by {e['moved']:.1f} times the standard deviation of outputs over "
            "different texts."
        ),
        "The prediction for one text depends on the longest text of its batch.",
        lambda e: (
            "Use pack_padded_sequence(x, lengths, enforce_sorted=False), or take the output at the last real token."
            if e["recurrent"]
            else "Pass src_key_padding_mask (True at padding) to the attention layers."
        ),
    ),
    "scrambled images": Text(
        "critical",
        lambda e: (
            f"The images are scrambled: pixels three positions apart correlate more ({e['far']:.2f}) than "
            f"neighbouring pixels ({e['near']:.2f})."
        ),
        "Images of shape (height, width, channels) were probably reshaped to (channels, height, width).",
        "Use x.permute(0, 3, 1, 2) instead of x.view(n, 3, h, w).",
    ),
    "regression on classes": Text(
        "warning",
        lambda e: "The targets are one-hot class labels, but the loss is a squared or absolute error.",
        "When the model is confident and wrong, the gradient of a squared or absolute error nearly vanishes, so training stalls.",
        "Use cross_entropy(logits, targets.argmax(1)), without a softmax or sigmoid in the model.",
    ),
    "softmax over one class": Text(
        "critical",
        lambda e: f"A softmax runs over a dimension of size 1 (shape {tuple(e['shape'])}), so its output is always 1.",
        "A constant output has no gradient, so the layers before this softmax cannot learn.",
        "For one output per example, use binary_cross_entropy_with_logits without a softmax. "
        "For several classes, apply the softmax over the class dimension.",
    ),
    "softmax dimension": Text(
        "critical",
        lambda e: f"A softmax runs over dimension 0, the batch dimension (shape {tuple(e['shape'])}).",
        "Probabilities sum to 1 over the batch, so each output depends on the other examples.",
        "Apply the softmax over the class dimension: softmax(x, dim=-1).",
    ),
    "output activation": Text(
        "critical",
        lambda e: (
            f"The model ends in a {e['activation']}, which does not fit {e['loss']}.{_reached(e)}"
            if "beyond" not in e
            else f"The model ends in a {e['activation']}, which cannot produce {percent(e['beyond'])} of the targets. "
            f"The targets range from {e['low']:.3g} to {e['high']:.3g}."
        ),
        "The last activation limits the outputs to a range that does not fit the loss.",
        lambda e: f"Remove the {e['activation']} from the end of the model and return the output of the last layer.",
    ),
    "broadcast": Text(
        "critical",
        lambda e: (
            f"Predictions of shape {tuple(e['prediction'])} are broadcast to shape {tuple(e['compared'])}: every prediction is compared with every target."
        ),
        "Shapes (N, 1) and (N,) broadcast to (N, N). "
        "Such a loss is lowest when every prediction is the mean of all targets.",
        "Give both the same shape before the loss: prediction.squeeze(1) or target.unsqueeze(1).",
    ),
    "loss sign": Text(
        "critical",
        lambda e: "The loss has the wrong sign: every step makes the fit worse.",
        "Minimising a negated loss makes the error as large as possible.",
        "Remove the minus sign before the loss; nll_loss and cross_entropy already contain it. "
        "If the optimizer was created with maximize=True, remove that argument instead.",
    ),
    "padding counted": Text(
        "warning",
        lambda e: f"{percent(e['share'])} of the labels are padding (token {e['token']}), and the loss includes them.",
        "Predicting padding lowers the loss, and real tokens get a smaller share of the gradient.",
        lambda e: f"Pass ignore_index={e['token']} to the loss, or set the labels of padding to -100.",
    ),
    "graph grows": Text(
        "critical",
        lambda e: (
            f"The autograd graph of the loss grows with every step: from {e['first']} to {e['last']} nodes so far."
        ),
        "Each backward pass goes through all earlier steps, so time and memory per step keep growing.",
        "Detach what is carried from step to step: hidden = hidden.detach(). Add up losses with total += loss.item().",
    ),
    "no optimizer step": Text(
        "critical",
        lambda e: (
            "In 10 passes of the training loop, optimizer.step() was never called"
            + ("." if e.get("backward") else ", and neither was backward()." if e.get("graph") else ".")
        ),
        "Without optimizer steps the weights keep their initial values.",
        "Call loss.backward() and optimizer.step() in each training step.",
    ),
    "gradients gone": Text(
        "critical",
        lambda e: (
            f"{e['optimizer']} steps without gradients: every .grad is None or zero, although backward() has run."
        ),
        "Gradients that are cleared between backward() and step() cannot change the weights.",
        "Call optimizer.zero_grad() before loss.backward(), not between backward() and step().",
    ),
    "step before backward": Text(
        "critical",
        lambda e: f"{e['optimizer']} steps between the forward pass and loss.backward().",
        "Each step uses the gradients of the previous batch, or no gradients at all. In a model of two or more layers, "
        "loss.backward() then raises an error, because the step changed weights that the backward pass needs.",
        "Call optimizer.step() after loss.backward().",
    ),
    "gradients carried over": Text(
        "critical",
        lambda e: (
            f"Gradients are never cleared: {e['optimizer']} made {e['steps']} steps with the sum of all gradients "
            "so far."
        ),
        "Without clearing, each step follows all earlier gradients as well, like a momentum of 1.",
        "Call optimizer.zero_grad() before each loss.backward(). With gradient accumulation, call zero_grad() once per optimizer step.",
    ),
    "cut off": Text(
        "critical",
        lambda e: f"The loss does not depend on any parameter of {e['optimizer']}.",
        "The autograd graph is cut between the parameters and the loss.",
        "Remove detach(), .data, .item(), numpy calls, no_grad() or argmax between the model's output and the loss.",
    ),
    "zero gradient": Text(
        "critical",
        lambda e: (
            f"Every path from {names(e['parameters'])} to the loss goes through sign, round or floor, whose gradient "
            "is zero."
        ),
        "Parameters before sign, round or floor get a gradient of exactly zero and never change.",
        "Use a straight-through estimator, x + (x.round() - x).detach(), or a smooth function such as tanh.",
    ),
    "unused layers": Text(
        "warning",
        lambda e: (
            f"The loss does not depend on {names(e['parameters'])}: {percent(e['share'])} of the weights get no "
            "gradient."
        ),
        "Layers without a gradient keep their initial weights.",
        "Use these layers in forward(), or remove a detach() between them and the loss. Delete layers that are not "
        "needed.",
    ),
    "stacked linear layers": Text(
        "warning",
        lambda e: "The model has no activation function between its linear layers, so they act as one linear layer.",
        "Without a nonlinearity the model can only learn linear functions.",
        "Put an activation such as nn.ReLU() between the linear layers.",
    ),
    "batch norm on few examples": Text(
        "warning",
        lambda e: "Batch norm receives one example at a time.",
        "The statistics of one example are mostly noise, and they differ from the running statistics of eval mode.",
        "Use larger batches, or replace batch norm with GroupNorm, LayerNorm or InstanceNorm.",
    ),
    "loss clamped": Text(
        "warning",
        lambda e: (
            f"The loss is clamped, so {percent(e['share'])} of the errors in a batch get no gradient."
            if e.get("share")
            else "The loss is clamped, so its gradient is zero beyond the limit."
        ),
        "Clamping the loss does not shorten large gradients: it sets them to zero. Examples with the largest errors stop contributing to training.",
        "Clip the gradient instead: torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0) between backward() and "
        "step().",
    ),
    "loss mismatch": Text(
        "critical",
        lambda e: "The arguments of the loss are swapped: the labels are passed as the prediction.",
        "Loss functions take (prediction, target). With swapped arguments the gradient is wrong.",
        "Call loss_fn(prediction, target).",
    ),
    "summed loss": Text(
        "warning",
        lambda e: f"The loss is a sum over {e['summed']} examples instead of a mean, and the run is not learning well.",
        "The gradient of a sum grows with the batch size, and so does the effective learning rate.",
        lambda e: f"Use reduction='mean', or divide the learning rate by {e['summed']}.",
    ),
    "precision": Text(
        "critical",
        lambda e: f"The weights are stored in float16: {names(e['parameters'])}.",
        "float16 has about three decimal digits, and rounds numbers below 6e-8 to zero. "
        "In float16 small gradients and Adam's averages become zero.",
        "Keep the weights in float32 and run the model under torch.autocast, or use bfloat16.",
    ),
    "strong dropout": Text(
        "warning",
        lambda e: f"A dropout layer drops {percent(e['dropout'])} of its inputs, and the loss does not fall.",
        "The units that dropout keeps carry too little signal to learn from.",
        lambda e: f"Set the dropout probability to p=0.5 or less (now {e['dropout']:g}).",
    ),
    "not in the optimizer": Text(
        "critical",
        lambda e: (
            f"No optimizer contains {names(e['parameters'])}, although the loss gives "
            f"{'them' if len(e['parameters']) > 1 else 'it'} a gradient."
        ),
        "Parameters outside the optimizer keep their initial values.",
        "Pass model.parameters() to the optimizer after the model is complete, or call "
        "optimizer.add_param_group({'params': ...}). Set requires_grad = False on parameters that should stay fixed.",
    ),
    "not registered": Text(
        "critical",
        lambda e: (
            f"The model uses {names(e['parameters'])} without registering "
            f"{'them as parameters' if len(e['parameters']) > 1 else 'it as a parameter'}."
            if e["parameters"]
            else "A layer is created inside forward(), so each pass uses new random weights."
        ),
        "Modules in a plain list, tuple or dict are missing from parameters(), state_dict() and .to().",
        "Create layers in __init__ and store them as attributes, in nn.ModuleList or in nn.ModuleDict.",
    ),
    "stale parameters": Text(
        "critical",
        lambda e: (
            f"The optimizer holds {e['held']} tensors that the model does not use, and lacks {names(e['parameters'])}."
        ),
        "The model's parameters were replaced after the optimizer was created, so optimizer steps do not change the "
        "model.",
        "Create the optimizer after the last change to the model's layers.",
    ),
    "update lost": Text(
        "critical",
        lambda e: (
            f"Optimizer steps do not change {names(e['parameters'])}, although gradient and learning rate are not zero."
            if not e.get("undone")
            else f"Every change that a step makes to {names(e['parameters'])} is undone before the next step."
        ),
        "The update is smaller than the rounding error of the weights, or the code writes it to a copy.",
        lambda e: (
            "Remove the code that writes old weights back after optimizer.step()."
            if e.get("undone")
            else "Keep the weights in float32, or raise the learning rate. If the code assigns to .data of a copy, "
            "assign to the model's own parameters instead."
        ),
    ),
    "optimizer recreated": Text(
        "warning",
        lambda e: f"{e['times']} optimizers were created for the same parameters.",
        "Momentum and Adam average gradients over many steps. A new optimizer starts these averages from zero.",
        "Create the optimizer once, before the training loop.",
    ),
    "tying lost": Text(
        "warning",
        lambda e: (
            f"{e['output']} starts as a copy of {e['embedding']}, but they are two tensors, so their weights are not "
            "tied."
        ),
        "The two tensors become different during training, and a loaded checkpoint may restore only one of them.",
        lambda e: f"Assign the parameter itself: model.{e['output']}.weight = model.{e['embedding']}.weight.",
    ),
    "train mode in evaluation": Text(
        "warning",
        lambda e: (
            f"An evaluation runs in train mode: {e['count']} dropout or batch-norm layers are active "
            f"({names(e['layers'])})."
        ),
        "In train mode dropout removes units and batch norm uses the current batch, so the scores are not those of "
        "the trained model.",
        "Call model.eval() before the evaluation and model.train() after it.",
    ),
    "left in eval mode": Text(
        "critical",
        lambda e: (
            "Training runs in eval mode, so the spectral-norm layers do not update their estimate of the norm."
            if e.get("spectral")
            else f"Training runs in eval mode: all {e['count']} dropout and batch-norm layers have been switched off."
        ),
        "In eval mode dropout does nothing, and batch norm uses its stored statistics.",
        "Call model.train() before training and after each evaluation.",
    ),
    "constant labels": Text(
        "critical",
        lambda e: f"All labels of the first {e['batches']} batches are equal to {e['mode']}.",
        "A constant output fits equal labels, so the model learns to ignore its input.",
        "Shuffle the data with DataLoader(..., shuffle=True), and check how the labels are loaded.",
    ),
    "sorted labels": Text(
        "warning",
        lambda e: (
            f"Each batch contains few classes: the label entropy is {e['within']:.2f} within a batch and "
            f"{e['entropy']:.2f} overall."
        ),
        "The data are sorted by class, so each step fits the classes of its own batch only.",
        "Shuffle the data with DataLoader(..., shuffle=True).",
    ),
    "label is input": Text(
        "critical",
        lambda e: f"{percent(e['share'])} of the labels equal the input token at the same position.",
        "The model learns to copy its input. A language model must predict the next token.",
        "Shift the labels by one: inputs = tokens[:, :-1], labels = tokens[:, 1:].",
    ),
    "label leak": Text(
        "warning",
        lambda e: f"Input column {e['feature']} alone determines the label{_leaked(e)}.",
        "The inputs contain the label, or a value computed from it.",
        lambda e: f"Remove column {e['feature']} from the inputs.",
    ),
    "future leak": Text(
        "critical",
        lambda e: "Predictions depend on later tokens, although each label is the next token.",
        "The model sees the answer during training, so a low loss says nothing about generated text.",
        "Use a causal mask, for example is_causal=True in scaled_dot_product_attention.",
    ),
    "order ignored": Text(
        "warning",
        lambda e: "Reordering the input tokens does not change the prediction.",
        "Attention without position information treats the tokens as an unordered set.",
        "Add position embeddings to the token embeddings: x = tokens + positions[: tokens.shape[1]].",
    ),
    "examples mixed": Text(
        "critical",
        lambda e: "In eval mode the output for one example changes when the other examples of the batch change.",
        "A reshape or an operation over the wrong dimension mixes the examples of a batch.",
        "Check each view and reshape (should it be permute?), batch_first, and operations over dimension 0.",
    ),
    "targets not scaled": Text(
        "warning",
        lambda e: (
            f"Targets have mean {e['mean']:.3g} and standard deviation {e['spread']:.3g}, while initial outputs are "
            "close to zero."
        ),
        "Errors and gradients grow with the targets, so the usual learning rates do not fit.",
        lambda e: f"Standardise the targets: y = (y - {e['mean']:.4g}) / {max(e['spread'], 1e-12):.4g}.",
    ),
    "replicas differ": Text(
        "critical",
        lambda e: f"Ranks {e['ranks'][0]} and {e['ranks'][1]} hold different weights in {names(e['parameters'])}.",
        "Data-parallel training assumes equal weights on all ranks. Ranks with different weights train different "
        "models, and only one of them is saved.",
        "Seed and load the model before wrapping it in DistributedDataParallel, and call the wrapped model. "
        "Change weights and clip gradients in the same way on every rank.",
    ),
    "targets not finite": Text(
        "critical",
        lambda e: f"{percent(e['share'])} of the targets in a batch are NaN or infinite.",
        "A single NaN target makes the loss and all gradients NaN.",
        "Drop examples without a finite target before training: keep = torch.isfinite(y).",
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
        threshold="the check fails; it has no threshold",
        source="read from the training loop in its first steps",
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
