"""The codes of warnings and errors: what happened, why, and what to do.

A message ends with ``(netvitals explain CODE)``, and that command prints the entry. ``docs/troubleshooting.md`` is
written from this file and has an anchor for each code. The file imports nothing, so that every package can use it.
"""

from __future__ import annotations

from typing import NamedTuple


class Code(NamedTuple):
    """The explanation of one code: what happened, why, and what to do."""

    title: str
    why: str
    advice: str


CODES: dict[str, Code] = {
    # ---------------------------------------------------------------- while a model is watched
    "already-watched": Code(
        "The model is already watched",
        "Two watches of one model would each add hooks to it and count its steps twice. A watch that is no longer "
        "referenced (a notebook cell run again, an exception) is closed automatically, with a warning.",
        "Close the first watch before you start the second, for example by using `with nv.watch(...)`.",
    ),
    "alert-failed": Code(
        "A finding could not be sent to `on_finding`",
        "The function that you passed as `on_finding=` raised an error, or the web hook could not be reached. Reasons "
        "are an invalid address, no answer in time, an error or a redirect. The path and query of a web hook are "
        "treated as a secret and never printed. "
        "Training continues.",
        "Call your `on_finding=` function yourself with `watch.findings()[0]`, or send a request to the address of the "
        "web hook by hand. The findings are stored in the run in any case.",
    ),
    "closed": Code(
        "The watch or run is already closed",
        "A watch is closed at the end of its `with` block or by `close()`, and its run is closed with it. Nothing "
        "can be added to a closed run.",
        "Start a new watch. To continue the same run, use `nv.watch(..., run=..., resume=True)`.",
    ),
    "compiled-part": Code(
        "The inside of compiled code cannot be measured",
        "PyTorch does not call hooks of modules inside a compiled graph. If the whole model is compiled, netvitals "
        "measures its uncompiled module instead. A compiled part inside another model cannot be measured.",
        "Compile the whole model, or pass `probe=(x, y, loss_fn)`: netvitals then runs the uncompiled parts on that "
        "batch.",
    ),
    "findings-failed": Code(
        "The findings could not be computed",
        "A rule raised an error on measurements that it did not expect. The measurements are stored in the run.",
        "`netvitals check RUN` computes all findings again. Please report the traceback that `NETVITALS_DEBUG=1` "
        "shows.",
    ),
    "foreign-optimizer": Code(
        "The optimizer does not update this model",
        "None of the optimizer's parameters belongs to the watched model. The model was copied, wrapped or moved after "
        "the optimizer was made, or another model was passed.",
        "Make the optimizer from `model.parameters()` of the watched model, after `to(device)` and after wrapping.",
    ),
    "preflight-failed": Code(
        "A check before training failed",
        "`nv.preflight` trained copies of the model for a few steps and found a problem that will spoil the training.",
        "Print `watch.preflight`: each failed check shows what was measured and a line of code that fixes it. "
        "To train anyway, leave `preflight=` out.",
    ),
    "forecasting-failed": Code(
        "Forecasting stopped",
        "A forecast method raised an error. Forecasts are turned off for the rest of the run; all other measurements "
        "continue.",
        "You need not do anything; please report the message. `forecasts=False` turns forecasts off from the start.",
    ),
    "measurement-failed": Code(
        "A measurement of the model failed",
        "The code of netvitals raised an error: an output of an unknown type, a device out of memory, or a bug. The "
        "error was caught, your training is not affected, and the measurements of that step are missing.",
        "If the message comes on every step, leave out the vital sign that it names: pass only the others, such as "
        '`vitals=["gates", "gradients"]`. '
        "Please report the message with the output of `netvitals doctor --json`.",
    ),
    "lost-measurements": Code(
        "Measurements are lost",
        "The run file could not be written before training ended, or measurements came faster than the disk could "
        "store them. Measurements that were still in memory were lost. The run records the number of "
        "lost measurements.",
        "Check the disk: is it full, unmounted, over quota, or a slow network drive? Choose a `run=` on a local "
        "disk, or measure less often (`every=`). Training was not affected.",
    ),
    "model-not-called": Code(
        "The watched model was not called on a measured step",
        "netvitals measures a module when it is called with gradients. The training loop did something else: it "
        "called a wrapper that holds a copy, or a method other than forward, or the model under `torch.no_grad()`.",
        "Watch the module that the loop calls (after DDP, compile or `prepare`). If the loop calls several parts, list "
        "them: `nv.watch([encoder, decoder], opt)`.",
    ),
    "no-parameters": Code(
        "The model has no parameters",
        "The watched module has no parameters, so there is no training to watch.",
        "Pass the module that contains the layers; `sum(1 for _ in model.parameters())` must not be 0.",
    ),
    "optimizer-not-stepping": Code(
        "The optimizer never made a step",
        "netvitals counts the steps of the optimizer that you passed. `watch.step` was called many times, but this "
        "optimizer never stepped: another one updates the model, or a gradient scaler skips every step.",
        "Pass the optimizer that updates the model. If you update the parameters by hand, leave `optimizer=` out; each "
        "call of `watch.step` then counts as a step.",
    ),
    "probe-failed": Code(
        "The batch of `probe=` could not be measured",
        "Before training starts, the watch runs the model and the loss once on the batch of `probe=`. The model or "
        "the loss raised an error.",
        "Run `loss_fn(model(x), y).backward()` with the `x`, `y` and `loss_fn` of the probe. If this works, leave "
        "`probe` out or name fewer vital signs (`vitals=`), and please report the message.",
    ),
    "ranks-apart": Code(
        "The ranks no longer measure together",
        "One rank is not watched, has measured other places, or did not answer in time. Waiting for this rank would "
        "stop your training. From now on only rank 0 is recorded.",
        "Call `nv.watch` on every rank with the same arguments, after wrapping the model. All ranks must make the same "
        "steps.",
    ),
    "sharded": Code(
        "A sharded parameter cannot be measured",
        "The parameter is split over ranks in a way that this version does not support (FSDP with "
        "`use_orig_params=False`, or partial sums). Its full value is not available.",
        "Use FSDP2 (`fully_shard`) or `use_orig_params=True`. Activations are measured in any case.",
    ),
    "tracker-failed": Code(
        "A tracker did not accept the measurements",
        "The client of the tracker raised an error (no network, run finished, quota exceeded). Training and the run on "
        "disk continue. After several errors nothing more is sent.",
        "Send the finished run later with `netvitals.integrations.trackers.send(run, to=...)`.",
    ),
    "tracker-not-open": Code(
        "The tracker has no active run",
        "`log=wandb` and `log=mlflow` send measurements to the active run of the tracker, but there is none.",
        "Call `wandb.init()` or `mlflow.start_run()` before `nv.watch`, or pass the run itself.",
    ),
    "eager-replay-failed": Code(
        "The uncompiled model could not be run",
        "A compiled model is measured by running its uncompiled module once more on the same batch, and this raised an "
        "error.",
        "Run the uncompiled model on a batch yourself; it will raise the same error. With `probe=(x, y, loss_fn)`, "
        "netvitals uses that batch instead.",
    ),
    "vital-failed": Code(
        "A vital sign failed at one place and is turned off there",
        "The vital sign raised an error on the tensors of this place, which `skipped` names. "
        "It is still measured at all other places.",
        "If you wrote the vital sign, test it with `nv.checkup(..., vitals=[my_vital])`; the message contains the "
        "error. If the vital sign is part of netvitals, please report the message.",
    ),
    "vital-unsound": Code(
        "A vital sign is not written correctly",
        "A vital sign needs a unique `name` and a method such as `activation(recorder, view)`. A vital sign must "
        "record one value for each site and metric.",
        "See the example in the docstring of `netvitals.capture.Vital`.",
    ),
    # ---------------------------------------------------------------- the batch, the model and the loss
    "batch-empty": Code(
        "The batch contains nothing to measure",
        "The batch has no tensor with elements, is an exhausted iterator, or has only one example where batch norm "
        "needs two.",
        "Give `(x, y)` with x of shape (batch size, …) and a batch size of at least 2. A loader must be readable "
        "more than once.",
    ),
    "lazy-parameters": Code(
        "A lazy parameter has no shape yet",
        "Lazy modules get the shapes of their parameters in the first forward pass.",
        "Run one batch through the model before you make the optimizer and the watch.",
    ),
    "likelihood-unknown": Code(
        "The type of likelihood cannot be determined",
        "Fisher matrices, λ and K-FAC depend on whether outputs are class scores or real values. From your own loss "
        "function, netvitals cannot tell which of the two applies.",
        "Pass `loss_fn` as `'ce'` or `'mse'`, or use torch's `cross_entropy` or `mse_loss`.",
    ),
    "no-loss": Code(
        "There is no loss",
        "No `loss_fn` was given and the model's output contains no loss, or the batch has no target, or the loss is "
        "not one number.",
        "Give a function `loss_fn(output, target)` that returns the mean loss, and a batch `(x, y)`. A model that "
        "returns `.loss` also works, with a batch that has labels.",
    ),
    "no-memory": Code(
        "The measurement would exceed the memory budget",
        "Second derivatives keep the graph of a whole batch, and an exact matrix has one number for each pair of "
        "parameters.",
        "Follow the message: use fewer examples or nodes, a stochastic method, or a larger `memory=` in bytes.",
    ),
    "not-finite": Code(
        "A value is NaN or infinite",
        "The batch, a parameter or the loss contains NaN or infinity, so measurements would have no meaning.",
        "Check the batch and each parameter with `torch.isfinite(x).all()`. In a run, the finding `not finite` "
        "names the first layer with such values (`netvitals explain 'not finite'`).",
    ),
    "nothing-seen": Code(
        "No activation function was found",
        "netvitals detects activation functions of any form, but the forward pass called no elementwise nonlinearity "
        "outside of fused or compiled code.",
        "`print(nv.anatomy.chart(model, x))` shows what was detected. To make a module of your own count as an "
        "activation, set its attribute `elementwise = True`.",
    ),
    "output-shape": Code(
        "The model returns more than one tensor",
        "This measurement needs a single tensor as the model's output.",
        "Give a model that returns one tensor or an output object with `.logits`, for example by a small wrapper "
        "module.",
    ),
    "overwritten": Code(
        "The output of a layer was overwritten in place",
        "An in-place operation such as `relu_` overwrote the tensor before its gradient was computed. Autograd did "
        "not need the old values, but the measurement needed them.",
        "You need not do anything: the other measurements of this layer exist. To measure the gradient of this "
        "layer too, set `inplace=False`.",
    ),
    # ---------------------------------------------------------------- runs on disk
    "checkpoint-unreadable": Code(
        "A checkpoint cannot be used",
        "The file is not a state dict written by `torch.save`, or two files belong to the same step.",
        "Save `model.state_dict()`. The last number in the file name must be the training step.",
    ),
    "no-run": Code(
        "There is no such run",
        "The path contains no `run.sqlite`, or the run does not contain the requested measurements.",
        "Give the folder that was passed as `run=`. `netvitals ls FOLDER` lists all runs in a folder.",
    ),
    "run-damaged": Code(
        "A run is damaged",
        "The checksums of the run file do not match: a disk error, a copy or another program changed it. If the "
        "training process was killed, the side file ending in `-wal` contains the last measurements and must be "
        "kept.",
        "`netvitals recover RUN` saves every intact measurement to a new run and reports what is lost.",
    ),
    "run-exists": Code(
        "A run with this name already exists",
        "A second run with the same name gets a number, such as `first-2`. `watch.path` is the path of the new run.",
        "Choose another `run=`, continue the old run with `resume=True`, or replace it with `overwrite=True`.",
    ),
    "run-layout": Code(
        "The run was written by another version",
        "The file format of the run is newer than this version of netvitals, or too old to be continued.",
        "Upgrade netvitals. You can still read and export an old run (`netvitals export RUN`), and start a new one.",
    ),
    "run-locked": Code(
        "Another process writes this run",
        "Only one process can write a run at a time; two would overwrite each other's measurements.",
        "Wait for the other process, stop it, or choose another `run=`. The lock of a dead process is released "
        "automatically.",
    ),
    "run-not-writable": Code(
        "The run file cannot be written",
        "The disk is full or not mounted, the folder was deleted, or permission is missing. Training continues. "
        "Measurements are kept in memory while there is space, and writing is retried.",
        "Free disk space or mount the disk again, or choose a `run=` on a local disk. `run=None` keeps measurements in "
        "memory only.",
    ),
    "run-of-another": Code(
        "The run belongs to another model",
        "A run can only be continued with the same model, but the parameters or sites differ.",
        "Start a new run, or load the model with which the run was started.",
    ),
    "run-unfinished": Code(
        "The run is still being written",
        "Only the measurements that exist now are sent; later ones are not.",
        "Wait until training ends, or send measurements during training with `nv.watch(..., log=...)`.",
    ),
    # ---------------------------------------------------------------- what was asked for
    "factory-failed": Code(
        "The function given to a command failed",
        "The command imports `PKG.MODULE:FACTORY` from the current folder and calls it without arguments. The function "
        "must return a tuple such as (model, loss_fn, batch).",
        "Check that `python -c 'from PKG.MODULE import FACTORY; FACTORY()'` works in this folder. `NETVITALS_DEBUG=1` "
        "shows the traceback.",
    ),
    "missing-extra": Code(
        "An optional package is not installed",
        "netvitals itself needs few packages. Notebooks, trackers, trainers and the live page need additional "
        "packages, which are installed as extras.",
        "Run the `pip install 'netvitals[EXTRA]'` of the message. `netvitals doctor` lists all extras.",
    ),
    "needs-probe": Code(
        "A vital sign needs an argument that was not given",
        "Some vital signs are measured on a fixed batch, or need the optimizer and its learning rate.",
        "Pass `probe=(x, y, loss_fn)` and `optimizer=` to `watch`. `netvitals vitals` lists what each vital sign "
        "needs.",
    ),
    "needs-steps": Code(
        "A vital sign needs training steps",
        "The vital sign measures the effect of an optimizer step or compares the distributed ranks at a step. A "
        "checkup makes no steps.",
        "Use the vital sign in `nv.watch(..., vitals=[...])`.",
    ),
    "no-measurements": Code(
        "The run does not have the needed measurements",
        "The command or function needs measurements that were not recorded in this run.",
        "`nv.open_run(RUN).frame()` shows what was recorded. Train again with the vital sign that the message names.",
    ),
    "products-closed": Code(
        "The operators are closed",
        "Curvature operators keep the graph of a forward pass, which is freed at the end of their `with` block.",
        "Use the operators inside `with curvature.operators(...) as of:`.",
    ),
}

# why a place could not be measured (the keys are those of the reasons in `skipped`), and what to do to measure it
NOT_SEEN: dict[str, str] = {
    "mixing": "Nothing: attention has its own vital sign, and elementwise operations around it are measured.",
    "recurrent": "To measure its gates, write the recurrence with cells (`nn.LSTMCell`). Its outputs are measured.",
    "compiled": "Pass `probe=(x, y, loss_fn)`, or compile the model as a whole.",
    "scripted": "Watch the model before it is scripted.",
    "attention": "Call it with `need_weights=True`, or write attention with separate projections.",
    "fused attention": "Use the eager kernel to measure every head (Hugging Face: `attn_implementation='eager'`).",
    "mask": "Nothing: the operations before and after it are measured.",
    "no room": "Nothing: it is measured on other steps. A smaller batch needs less memory.",
    "own backward": "Nothing: the derivative of the forward pass is reported.",
    "function": "To measure its inputs too, make it a module (`nn.Linear`).",
    "fused": "Measure in train mode.",
}


def hint(slug: str) -> str:
    """The end of a message that names its code.

    >>> hint("closed")
    '(netvitals explain closed)'
    """
    return f"(netvitals explain {slug})"
