"""Measurements and laws turned into a diagnosis: causes with their consequences, dated, with what would refute them."""

from netvitals.findings.diagnosis import RULES, Findings, diagnose, open_run
from netvitals.findings.diagnosis import Checked as Checked
from netvitals.findings.diagnosis import activations_of as activations_of
from netvitals.findings.exact import asked as asked
from netvitals.findings.exact import failures as failures
from netvitals.findings.exact import told as told
from netvitals.findings.explanation import explain as explain
from netvitals.findings.explanation import rule_named as rule_named
from netvitals.findings.explanation import threshold_of as threshold_of
from netvitals.findings.markdown import anchor as anchor
from netvitals.findings.markdown import reference as reference
from netvitals.findings.series import Measurements as Measurements
from netvitals.findings.series import Series as Series
from netvitals.findings.series import Totals as Totals
from netvitals.findings.series import is_pooled as is_pooled
from netvitals.findings.series import measurements_by_run as measurements_by_run
from netvitals.findings.series import table as table
from netvitals.findings.status import STATES as STATES
from netvitals.findings.status import Status as Status
from netvitals.runs import Evidence, Finding
from netvitals.runs import Remedy as Remedy

REMEDIES = {
    "zero_grad": "call optimizer.zero_grad() before each backward pass",
    "train_mode": "call model.train() before each step",
    "add_parameters": "give these parameters to the optimizer",
    "attach": "take the detach() behind these layers out",
    "unfreeze": "set requires_grad = True and give the parameters to the optimizer",
    "negate_loss": "change the sign of the loss",
    "one_softmax": "give the loss logits",
    "mean_loss": "average the loss over the batch",
    "scale_accumulation": "multiply each micro-batch's loss by this",
    "drop_not_finite": "replace values that are not finite in the input by zero, and go back to finite weights",
    "normalise_input": "subtract the mean of the inputs and divide by their standard deviation",
    "clip_input": "clip inputs at so many standard deviations",
    "repair_data": "mend the loader",
    "loss_scale": "multiply the loss by this before backward, and divide the gradients after it",
    "rate": "multiply the learning rate by this",
    "epsilon": "set the epsilon of Adam to this",
    "restart_rate": "draw the weights anew and multiply the learning rate by this, with a warm-up",
    "restart_momentum": "draw the weights anew and set the momentum to this",
    "constant_rate": "hold the learning rate at its base value",
    "decay": "multiply the weight decay by this, and exempt norms and biases",
    "clip": "clip the norm of the gradient here",
    "reinitialise": "draw the weights anew with a variance of gain/fan-in, all or these",
    "balance": "rescale neighbouring layers so that they hold the same squared weight",
    "revive_units": "draw the incoming weights of dead units anew and set their biases to zero",
    "rescale_inputs": "rescale what feeds these activations to unit size",
    "rescale_queries": "rescale the query and key projections so that scores have unit size",
    "balance_experts": "add a loss that balances experts, with this weight, and draw the router anew",
    "centre_embeddings": "subtract the mean of the embeddings",
    "stop": "stop, and keep the weights with the lowest held-out loss",
}  # what a program can do about a finding

__all__ = [
    "RULES",
    "Evidence",
    "Finding",
    "Findings",
    "diagnose",
    "open_run",
]
