r"""Experts: who gets the tokens of a mixture, and how sure the router is.

With $s_e$ the share of choices that fall on expert e: the load entropy $H = -\sum_e s_e \ln s_e$ over $\ln E$, the
effective number of experts $\exp H$, the experts without a token on this step, those without one among the last $60\,E$
choices (an expert with a twentieth of an equal share gets one with probability $1 - e^{-3}$), and the largest share
divided by an equal share. With $p$ the router's probabilities of a token: its entropy over $\ln E$, and the
margin between the last expert that was chosen and the first that was not.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import numpy as np
import torch

from netvitals.capture import Metric, Recorder, ReduceOverRanks, RouterView, Site, Vital

SEEN = 60  # choices per expert, ln 20 × 20: one with a twentieth of an equal share would have been chosen


class ExpertsVital(Vital):
    """``share`` by expert (an array) and, of every router, the numbers above.

    Of the model: the mean over routers, the sum of the dead, and the hottest of all.

    >>> ExpertsVital.metrics["dead"]
    Metric(meaning='experts that received no token on this measured step', unit='experts')
    """

    name = "experts"
    title = "Experts"
    meaning = (
        "How a mixture of experts distributes its tokens, and how certain the router is. An expert without tokens "
        "costs memory and never learns. If one expert gets most tokens, the others are not used."
    )
    metrics: ClassVar = {
        "share": Metric("fraction of routing choices that select this expert", "share"),
        "load_entropy": Metric("entropy of the token shares of the experts, divided by its maximum", "share"),
        "effective": Metric("effective number of experts: exp of the entropy of their token shares", "experts"),
        "dead": Metric("experts that received no token on this measured step", "experts"),
        "unused": Metric(
            "experts that were not selected in the last 60 × (number of experts) measured routing choices", "experts"
        ),
        "hot": Metric("token share of the busiest expert, divided by an equal share"),
        "router_entropy": Metric("mean entropy of the router's probabilities, divided by its maximum", "share"),
        "margin": Metric("mean gap between the lowest selected and the highest rejected probability", "share"),
    }
    absent = "no mixture of experts was found"
    headline = ("load_entropy", "effective", "unused")
    default = True
    every = 2

    def __init__(self) -> None:
        self._recorder: Recorder | None = None
        self._rows: list[np.ndarray] = []
        self._since: dict[str, np.ndarray] = {}  # choices since each expert of a router got one

    def router(self, recorder: Recorder, view: RouterView) -> None:
        if view.scores.numel() == 0 or view.chosen.numel() == 0:
            return
        scores = view.scores.float() if view.scores.dtype in (torch.float16, torch.bfloat16) else view.scores
        count = scores.shape[-1]
        p = scores if view.probabilities else torch.softmax(scores, -1)
        tokens = torch.zeros(count, dtype=p.dtype, device=p.device)
        tokens.index_add_(0, view.chosen.reshape(-1), torch.ones_like(view.chosen.reshape(-1), dtype=p.dtype))
        entropy = torch.special.entr(p).sum(-1).mean()
        margin = p.new_full((), torch.nan)
        if view.top_k < count:
            largest = p.topk(view.top_k + 1, dim=-1).values
            margin = (largest[:, -2] - largest[:, -1]).mean()
        over = ReduceOverRanks(("sum", "mean"), len(view.scores))
        recorder.on_host((tokens, torch.stack([entropy, margin])), partial(self._finish, recorder, view.site), over)

    def _finish(self, recorder: Recorder, site: Site, tokens: np.ndarray, rest: np.ndarray) -> None:
        share = tokens / tokens.sum()
        used = share[share > 0]
        load, equal = float(-(used * np.log(used)).sum()), np.log(len(share))
        since = np.where(tokens > 0, 0.0, self._since.get(site.name, 0.0) + tokens.sum())
        self._since[site.name] = since
        unused = (since >= SEEN * len(share)).sum()
        row = np.array(
            [
                load / equal,
                np.exp(load),
                (tokens == 0).sum(),
                unused,
                share.max() * len(share),
                rest[0] / equal,
                rest[1],
            ]
        )
        recorder.put(site, tuple(self.metrics)[1:], row)
        recorder.put_array([site], "share", share[None])
        if self._recorder is not recorder:
            self._recorder, self._rows = recorder, []
            recorder.on_host((), self._end)
        self._rows.append(row)

    def _end(self) -> None:
        if self._recorder is not None:
            rows = np.stack(self._rows)
            pooled = rows.mean(0)
            pooled[2:4], pooled[4] = rows[:, 2:4].sum(0), rows[:, 4].max()
            self._recorder.put("model", tuple(self.metrics)[1:], pooled)
        self._recorder, self._rows = None, []
