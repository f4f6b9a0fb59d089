r"""Attention: how large the scores of each head are, how widely it looks, and whether it rests on the first token.

With logits $s_{ij} = \text{scale}\, q_i \cdot k_j$ + mask and weights $p_{ij} = \mathrm{softmax}_j s_{ij}$, of each
head: the largest $s_{ij}$ that is not masked; the entropy $H_i = -\sum_j p_{ij} \ln p_{ij}$ over $\ln n_i$, with $n_i$
the keys that query i may see, averaged over queries with two or more; the mean attention weight on the first key, of
the same queries; and the mean lengths of q, k and v. The map is never there as a whole: queries are taken in blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from netvitals.capture import HeadsView, Metric, Recorder, ReduceOverRanks, Site, Vital

SINK = 0.3  # a head whose mean attention weight on the first key is above this rests on it
ENTRIES = 1 << 22  # of the map, at once
MASKED = -1e4  # what is added to forbid a key is below this
BY_HEAD = ("max_logit", "entropy", "first_token", "q_norm", "k_norm", "v_norm")


class AttentionVital(Vital):
    """The six numbers above by head (arrays), and of each block their worst and mean.

    Of a block: ``max_logit`` (the largest of its heads), ``entropy`` (mean of its heads), ``entropy_min`` (lowest),
    ``first_token`` (mean), ``sink_heads`` (share of heads whose weight on the first key is above 0.3), ``q_norm``,
    ``k_norm`` and ``v_norm`` (means). Of the model: the same over all heads.

    Args:
        block: entries of the attention map that are computed at a time, which bounds the memory of a look.

    >>> import netvitals, torch
    >>> from torch import nn
    >>> net = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), 2)
    >>> seen = netvitals.checkup(net, nn.MSELoss(), (torch.randn(4, 6, 8), torch.randn(4, 6, 8)),
    ...                          vitals=["attention"], curvature=False)
    >>> [0 < r.value <= 1 for r in seen.measurements if r.site != "model" and r.metric == "entropy"]  # of two blocks
    [True, True]
    """

    name = "attention"
    title = "Attention"
    meaning = (
        "Size of the attention scores, how many keys the heads attend to, and how much weight the first token gets. "
        "Attention scores often grow without bound before the loss diverges."
    )
    metrics: ClassVar = {
        "max_logit": Metric("largest unmasked attention score scale·q·k"),
        "entropy": Metric("entropy of the attention weights, divided by its maximum", "share"),
        "entropy_min": Metric("entropy of the head that attends to the fewest keys, divided by its maximum", "share"),
        "first_token": Metric("mean attention weight on the first key", "share"),
        "sink_heads": Metric("fraction of heads with more than 0.3 of their weight on the first key", "share"),
        "q_norm": Metric("mean Euclidean norm of the query vectors", "activation"),
        "k_norm": Metric("mean Euclidean norm of the key vectors", "activation"),
        "v_norm": Metric("mean Euclidean norm of the value vectors", "activation"),
    }
    absent = "no attention was found"
    headline = ("max_logit", "entropy")
    default = True
    every = 5

    def __init__(self, block: int = ENTRIES) -> None:
        if block < 1:
            raise ValueError(
                f"block= is a number of entries of the attention matrix and must be at least 1, got {block}"
            )
        self.block = block
        self._recorder: Recorder | None = None
        self._heads: list[np.ndarray] = []

    def heads(self, recorder: Recorder, view: HeadsView) -> None:
        if view.q.numel() == 0 or view.k.numel() == 0:
            return
        highest, sums = None, None
        for logits, allowed in self._blocks(view):
            seen = allowed.sum(-1)
            several = (seen > 1).expand(logits.shape[:-1])
            weights = torch.softmax(logits, -1)
            information = torch.special.entr(weights).sum(-1) / seen.clamp(min=2).to(weights.dtype).log()
            top = logits.masked_fill(~allowed, -torch.inf).amax((0, 2, 3))
            parts = torch.stack([information * several, weights[..., 0] * several, several.to(weights.dtype)])
            found = parts.sum((1, 3))
            highest = top if highest is None else torch.maximum(highest, top)
            sums = found if sums is None else sums + found
        if highest is None or sums is None:
            return
        lengths = torch.stack([_lengths(t, len(highest)) for t in (view.q, view.k, view.v)])
        over = ReduceOverRanks(("max", "sum", "mean"), view.q.numel())
        recorder.on_host((highest, sums, lengths), partial(self._finish, recorder, view.site), over)

    def _blocks(self, view: HeadsView) -> Iterator[tuple[Tensor, Tensor]]:
        """Scores (examples, heads, some queries, keys) and which of them are allowed."""
        if view.logits is not None:
            logits = view.logits
            rows = max(1, self.block // max(1, logits[:, :, :1].numel()))
            for begin in range(0, logits.shape[2], rows):
                part = _wide(logits[:, :, begin : begin + rows])
                yield part, part > MASKED
            return
        q, k = _wide(view.q), _wide(view.k)
        heads, keys = q.shape[1], k.shape[2]
        k = k if k.shape[1] == heads else k.repeat_interleave(heads // k.shape[1], dim=1)
        place = torch.arange(keys, device=q.device)
        rows = max(1, self.block // max(1, q.shape[0] * heads * keys))
        for begin in range(0, q.shape[2], rows):
            part = view.scale * (q[:, :, begin : begin + rows] @ k.transpose(-1, -2))
            if view.mask is not None:
                mask = view.mask if view.mask.shape[-2] == 1 else view.mask[..., begin : begin + rows, :]
                part = part.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else part + mask.to(part.dtype)
            if view.causal:
                query = torch.arange(begin, begin + part.shape[2], device=q.device)
                part = part.masked_fill(place > query[:, None], -torch.inf)
            yield part, part > MASKED

    def _finish(
        self, recorder: Recorder, site: Site, highest: np.ndarray, sums: np.ndarray, lengths: np.ndarray
    ) -> None:
        table = np.concatenate([highest[None], sums[:2] / sums[2], lengths])
        recorder.put(site, tuple(self.metrics), _pooled(table))
        for metric, values in zip(BY_HEAD, table):
            recorder.put_array([site], metric, values[None])
        if self._recorder is not recorder:
            self._recorder, self._heads = recorder, []
            recorder.on_host((), self._end)
        self._heads.append(table)

    def _end(self) -> None:
        if self._recorder is not None:
            self._recorder.put("model", tuple(self.metrics), _pooled(np.concatenate(self._heads, axis=1)))
        self._recorder, self._heads = None, []


def _pooled(table: np.ndarray) -> np.ndarray:
    """From numbers by head to those of a block or a model, in the order of the metrics."""
    logit, entropy, first, q, k, v = table
    sinks = np.nan if np.isnan(first).any() else (first > SINK).mean()
    return np.array([logit.max(), entropy.mean(), entropy.min(), first.mean(), sinks, q.mean(), k.mean(), v.mean()])


def _lengths(t: Tensor, heads: int) -> Tensor:
    """Mean length of the rows of each head; grouped heads share theirs."""
    found = torch.linalg.vector_norm(_wide(t), dim=-1).mean((0, 2))
    return found if len(found) == heads else found.repeat_interleave(heads // len(found))


def _wide(t: Tensor) -> Tensor:
    return t.float() if t.dtype in (torch.float16, torch.bfloat16) else t
