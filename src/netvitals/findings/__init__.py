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
    "add_parameters": "add these parameters to the optimizer",
    "attach": "remove the detach() after these layers",
    "unfreeze": "set requires_grad = True and add the parameters to the optimizer",
    "negate_loss": "change the sign of the loss",
    "one_softmax": "pass logits to the loss",
    "mean_loss": "average the loss over the batch",
    "scale_accumulation": "multiply the loss of each micro-batch by this factor",
    "drop_not_finite": "replace NaN and infinite inputs by zero, and restore finite weights",
    "normalise_input": "subtract the mean of the inputs and divide by their standard deviation",
    "clip_input": "clip inputs at this number of standard deviations",
    "repair_data": "repair the data loader",
    "loss_scale": "multiply the loss by this factor before backward(), and divide the gradients by it afterwards",
    "rate": "multiply the learning rate by this factor",
    "epsilon": "set the epsilon of Adam to this value",
    "restart_rate": "restart from new weights, with a warm-up and the learning rate multiplied by this factor",
    "restart_momentum": "restart from new weights, with the momentum set to this value",
    "constant_rate": "keep the learning rate at its base value",
    "decay": "multiply the weight decay by this factor, and exempt norm layers and biases",
    "clip": "clip the gradient norm at this value",
    "reinitialise": "initialise these weights (or all) again, with variance gain/fan_in",
    "balance": "rescale neighbouring layers to equal squared norms",
    "revive_units": "initialise the incoming weights of dead units again, and set their biases to zero",
    "rescale_inputs": "rescale the inputs of these activations to standard deviation 1",
    "rescale_queries": "rescale the query and key projections so that scores have standard deviation 1",
    "balance_experts": "add a load-balancing loss with this weight, and initialise the router again",
    "centre_embeddings": "subtract the mean of the embeddings",
    "stop": "stop training, and keep the weights with the lowest held-out loss",
}  # what a program can do about a finding

__all__ = [
    "RULES",
    "Evidence",
    "Finding",
    "Findings",
    "diagnose",
    "open_run",
]
