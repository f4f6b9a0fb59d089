"""Every kind of trouble that a warning or an error speaks of: why it comes, and what to do.

A sentence ends with ``(netvitals explain SLUG)``. That command prints the entry. ``docs/troubleshooting.md`` is written
from this file and has an anchor of the same name. It imports nothing, so that every package may point to it.
"""

from __future__ import annotations

from typing import NamedTuple


class Trouble(NamedTuple):
    """One kind of trouble, for people: what happened, why, and what to do."""

    title: str
    why: str
    advice: str


TROUBLES: dict[str, Trouble] = {
    # ---------------------------------------------------------------- while a model is watched
    "already-watched": Trouble(
        "The model is watched already",
        "Two watches of one model would each hook it and count its steps twice. A watch that nobody holds any more (a"
        " notebook cell run again, an exception in between) is closed for you, with a warning.",
        "Close the first watch before the second begins, best by using `with nv.watch(...)`.",
    ),
    "alert-failed": Trouble(
        "A finding could not be handed to `on_finding`",
        "The function that was given raised, or the web hook is not an address, did not answer within its time, or "
        "answered with an error or a redirect. Its path and query are a secret and never printed. Training goes on.",
        "Call the function yourself with `vitals.findings()[0]`, or post to the address by hand; findings are in the "
        "run all the same.",
    ),
    "closed": Trouble(
        "It is closed already",
        "A watch ends with its `with` block or `close()`, and a run with its watch; nothing can be added after that.",
        "Begin a new watch. To go on with the same run, `nv.watch(..., run=..., resume=True)`.",
    ),
    "compiled-part": Trouble(
        "Compiled code cannot be looked into",
        "Hooks on modules inside a compiled graph are not called. A model that is compiled as a whole is seen through"
        " its eager copy; a compiled part inside another model is not.",
        "Compile the whole model, or pass `probe=(x, y, loss_fn)`: the uncompiled parts are then looked at on that "
        "batch.",
    ),
    "findings-failed": Trouble(
        "Findings could not be made",
        "A rule raised on measurements that it did not expect. Measurements are in the run.",
        "`netvitals check RUN` asks all rules again; please report the traceback that `NETVITALS_DEBUG=1` shows.",
    ),
    "foreign-optimizer": Trouble(
        "The optimizer does not move this model",
        "None of its parameters is a parameter of the watched model: the model was copied, wrapped or moved after the"
        " optimizer was made, or another model was given.",
        "Make the optimizer from `model.parameters()` of the very model that is watched, after `to(device)` and "
        "wrapping.",
    ),
    "preflight-failed": Trouble(
        "A check before training failed",
        "`nv.preflight` trained copies of the model for a few steps and found something that will spoil the training.",
        "Print the result (`watch.preflight`): each failed check has what was measured and a line of code for the fix. "
        "Leave `preflight=` out to train all the same.",
    ),
    "forecasting-failed": Trouble(
        "Forecasting stopped",
        "A forecaster raised; forecasts are off for the rest of the run, everything else goes on.",
        "Nothing is needed. `forecasts=False` keeps it off from the start; please report the sentence.",
    ),
    "look-failed": Trouble(
        "A look at the model failed",
        "Something in our own measurement raised: an output of a kind that we do not know, a device out of memory, or"
        " a mistake of ours. It was caught, your training is untouched, and the measurements of that step are missing.",
        'If it comes on every step, leave out the vital sign or the part that the sentence names (`vitals=["gates", '
        '"gradients"]`), and report the sentence with the output of `netvitals doctor --json`.',
    ),
    "lost-measurements": Trouble(
        "Measurements are lost",
        "The file could not be written until the end, or they came faster than the disk takes them; what was kept "
        "in memory went with the process. How many there were is noted in the run.",
        "See to the disk (full? unmounted? quota? a slow network drive?), choose a `run=` on a local one, or measure "
        "less often (`every=`). Training was not affected.",
    ),
    "model-not-called": Trouble(
        "The watched model was not called on a step to be measured",
        "Hooks see what is called. The loop called another object: a wrapper that holds a copy, a method other than "
        "forward, or the model under `torch.no_grad()`.",
        "Watch the module that the loop calls (after DDP, compile or `prepare`), or list the parts that are called by"
        " themselves: `nv.watch([encoder, decoder], opt)`.",
    ),
    "no-parameters": Trouble(
        "There is nothing to train",
        "The module has no parameters, so there is no training to watch.",
        "Give the module that holds the layers; `sum(1 for _ in model.parameters())` must not be 0.",
    ),
    "optimizer-not-stepping": Trouble(
        "The optimizer never stepped",
        "The optimizer that was given counts the steps, but `vitals.step` was called many times and it never stepped:"
        " another optimizer moves the model, or a scaler leaves out every step.",
        "Give the optimizer that steps; with parameters moved by hand leave `optimizer=` out, then each call of "
        "`vitals.step` is a step.",
    ),
    "probe-failed": Trouble(
        "The batch of `probe=` could not be measured",
        "Before training a watch runs the model and the loss once on that batch, with hooks on, and an error came up.",
        "Run `loss_fn(model(x), y).backward()` with the very `x`, `y` and `loss_fn` of the probe. If that works, the "
        "model cannot be hooked: leave `probe` out, or name fewer vital signs (`vitals=`), and report the sentence.",
    ),
    "ranks-apart": Trouble(
        "The ranks do not measure together any more",
        "A rank is not watched, saw other places, or did not answer in time; to wait for it would stop your training."
        " What is recorded from then on is that of rank 0 alone.",
        "Call `nv.watch` on every rank with the same arguments, after wrapping; a rank that skips steps cannot share "
        "them.",
    ),
    "sharded": Trouble(
        "A cut parameter cannot be put together",
        "Its pieces are of a kind that this version does not know (FSDP with `use_orig_params=False`, sums not yet "
        "added up), so no rank can say what the whole is.",
        "Use FSDP2 (`fully_shard`) or `use_orig_params=True`; its activations are measured all the same.",
    ),
    "tracker-failed": Trouble(
        "A tracker did not take what was sent",
        "The tracker's own client raised (no network, run finished, quota). Training and the run on disk go on; after"
        " several failures nothing more is sent.",
        "`netvitals.integrations.trackers.send(run, to=...)` sends a finished run later.",
    ),
    "tracker-not-open": Trouble(
        "The tracker has no open run",
        "`log=wandb` or `log=mlflow` sends into the run that is open, and none is.",
        "Call `wandb.init()` or `mlflow.start_run()` before `nv.watch`, or give the run itself.",
    ),
    "twin-failed": Trouble(
        "The eager copy of a compiled model failed",
        "A compiled model is measured by running its uncompiled module once more on the loop's batch, and that raised.",
        "Run the uncompiled model on a batch yourself: the error is the same. With `probe=(x, y, loss_fn)` a batch of"
        " your own is used instead.",
    ),
    "vital-failed": Trouble(
        "A vital sign failed at one place and is off there",
        "It raised on what this place holds. It goes on elsewhere, and `skipped` names the place.",
        "For a vital sign of your own: the sentence has the error; try it with `nv.checkup(..., vitals=[it])`. For "
        "one of ours please report the sentence.",
    ),
    "vital-unsound": Trouble(
        "A vital sign is not written as it must be",
        "It needs a `name` that no other has, and a method such as `activation(recorder, view)`; what it records must"
        " have one value for each site and metric.",
        "See `netvitals.capture.Vital`, whose docstring has a whole example.",
    ),
    # ---------------------------------------------------------------- the batch, the model and the loss
    "batch-empty": Trouble(
        "The batch holds nothing to measure on",
        "It has no tensor with elements, is an iterator that was used up, or has one example where a batch norm needs"
        " two.",
        "Give `(x, y)` with x of shape (B, …), B at least 2, or a loader that can be asked anew.",
    ),
    "lazy-parameters": Trouble(
        "A parameter has no shape yet",
        "Lazy modules get their shape on the first pass.",
        "Run one batch through the model, then make the optimizer and the watch.",
    ),
    "likelihood-unknown": Trouble(
        "The kind of likelihood cannot be told",
        "Fisher matrices, λ and K-FAC need to know whether outputs are classes or values; a function of your own does"
        " not say it.",
        "Pass `loss_fn` as `'ce'` or `'mse'`, or torch's `cross_entropy` or `mse_loss`.",
    ),
    "no-loss": Trouble(
        "There is no loss",
        "No `loss_fn` was given and the model's output holds none, or the batch has no target, or the loss is not one"
        " number.",
        "Give `loss_fn(output, target)` that returns its mean, and a batch `(x, y)`; or a model that returns `.loss` "
        "with a batch that has labels.",
    ),
    "no-memory": Trouble(
        "It would take more memory than allowed",
        "Second derivatives keep the graph of a batch, and an exact matrix has a number for each pair of parameters.",
        "Do what the sentence says: fewer examples or nodes, a stochastic method, or `memory=` with more bytes.",
    ),
    "not-finite": Trouble(
        "Something is NaN or infinite",
        "The batch, a parameter or the loss holds values that are no numbers; what would be measured on them means "
        "nothing.",
        "`torch.isfinite(x).all()` on the batch and on each parameter says which; a run names the first layer where "
        "it began (`netvitals explain 'not finite'`).",
    ),
    "nothing-seen": Trouble(
        "No activation was seen",
        "Activations are found however they are written, but the pass ran no elementwise nonlinearity outside of "
        "fused or compiled code.",
        "`print(nv.anatomy.chart(model, x))` shows what is seen. A module of your own counts with `elementwise = "
        "True`.",
    ),
    "output-shape": Trouble(
        "The model returns more than one tensor",
        "What was asked for needs one tensor of outputs.",
        "Give a model that returns one tensor, or an output object with `.logits`; a wrapper of three lines does it.",
    ),
    "overwritten": Trouble(
        "A layer's output was overwritten in place",
        "An operation such as `relu_` destroyed the tensor before its gradient arrived; autograd did not need it, but"
        " we do.",
        "Nothing is needed: its other measurements are there. `inplace=False` makes it visible.",
    ),
    # ---------------------------------------------------------------- runs on disk
    "checkpoint-unreadable": Trouble(
        "A checkpoint cannot be used",
        "It is no state dict written by `torch.save`, or two of them stand for one step.",
        "Save `model.state_dict()`; the last number in the file's name is its step.",
    ),
    "no-run": Trouble(
        "There is no run, or no such part of one",
        "The path holds no `run.sqlite`, or the run was watched without what is asked for.",
        "Give the folder that was `run=`; `netvitals view FOLDER` lists all below it.",
    ),
    "run-damaged": Trouble(
        "A run is damaged",
        "What is in the file is not what was written (checksums differ): a disk, a copy or another program changed it."
        " Of a run that was killed, its side file ending in `-wal` holds the last measurements and belongs to it.",
        "`netvitals recover RUN` saves every measurement that is intact and says what is not.",
    ),
    "run-exists": Trouble(
        "There is a run already",
        "A second run of the same name gets a number: `first-2`. `watch.path` says where it is.",
        "Choose another `run=`, continue the old one with `resume=True`, or replace it with `overwrite=True`.",
    ),
    "run-layout": Trouble(
        "The run was written by another version",
        "Its layout is newer, or too old to be continued.",
        "Upgrade netvitals; an old run can be read and exported (`netvitals export RUN`), and a new one begun.",
    ),
    "run-locked": Trouble(
        "Another process writes this run",
        "One process writes a run at a time, else they would destroy each other's measurements.",
        "Wait, end the other one, or choose another `run=`. The lock of a dead process is taken over by itself.",
    ),
    "run-not-writable": Trouble(
        "The run cannot be written",
        "No room, no right, a folder that is gone, or a disk that is away. Training goes on; measurements are kept in "
        "memory while they fit, and writing is tried again.",
        "Free the disk or bring it back; else choose a `run=` on a local disk. `run=None` keeps measurements in memory "
        "only.",
    ),
    "run-of-another": Trouble(
        "The run belongs to another model",
        "A run is continued with the model it was begun with; parameters or sites differ.",
        "Begin a new run, or load the right model.",
    ),
    "run-unfinished": Trouble(
        "The run is still being written",
        "What is there now is sent; what comes later is not.",
        "Wait for its end, or send as it comes: `nv.watch(..., log=...)`.",
    ),
    # ---------------------------------------------------------------- what was asked for
    "factory-failed": Trouble(
        "The factory of a command did not give what it must",
        "`PKG.MODULE:FACTORY` is imported from where you stand, called without arguments, and must return model, "
        "loss_fn and batch.",
        "`python -c 'from PKG.MODULE import FACTORY; FACTORY()'` must work in this folder; `NETVITALS_DEBUG=1` shows "
        "the traceback.",
    ),
    "missing-extra": Trouble(
        "A part is not installed",
        "The core needs few packages; notebooks, trackers, trainers and the live page each bring their own with an "
        "extra.",
        "`pip install 'netvitals[EXTRA]'` as the sentence says; `netvitals doctor` lists all of them.",
    ),
    "needs-probe": Trouble(
        "A vital sign needs something that was not given",
        "Some look at a fixed batch, or at the optimizer's rule, and cannot do without.",
        "Pass `probe=(x, y, loss_fn)` and `optimizer=` to `watch`; `netvitals vitals` says who needs what.",
    ),
    "needs-steps": Trouble(
        "This vital sign looks at training steps",
        "It compares what an optimizer step did, or the ranks of one, and a checkup makes none.",
        "Ask for it in `nv.watch(..., vitals=[...])`.",
    ),
    "no-measurements": Trouble(
        "There are too few measurements for this",
        "What was asked for rests on measurements that this run does not have.",
        "`nv.open_run(RUN).frame()` shows what there is; watch with the vital sign that the sentence names.",
    ),
    "products-closed": Trouble(
        "The operators are closed",
        "Operators keep the graph of a pass, which is freed at the end of their `with` block.",
        "Use them inside `with curvature.operators(...) as of:`.",
    ),
}

# why a place could not be measured (the keys are those of the reasons in `skipped`), and what to do if you want to
NOT_SEEN: dict[str, str] = {
    "mixing": "Nothing: attention has its own vital sign, and the elementwise parts around it are measured.",
    "recurrent": "Write the recurrence with cells (`nn.LSTMCell`) to see its gates; outputs are measured.",
    "compiled": "Pass `probe=(x, y, loss_fn)`, or compile the model as a whole.",
    "scripted": "Watch the model before it is scripted.",
    "attention": "Call it with `need_weights=True`, or write attention with its own projections.",
    "fused attention": "Use the eager kernel (Hugging Face: `attn_implementation='eager'`) to see every head.",
    "mask": "Nothing: what comes before and after it is measured.",
    "no room": "Nothing: it is read on other passes; fewer examples make room.",
    "own backward": "Nothing: the slopes of the forward pass are what is given.",
    "function": "Make it a module (`nn.Linear`) if its inputs are to be seen too.",
    "fused": "Measure in train mode.",
}


def hint(slug: str) -> str:
    """The end of a sentence that points to its entry.

    >>> hint("closed")
    '(netvitals explain closed)'
    """
    return f"(netvitals explain {slug})"
