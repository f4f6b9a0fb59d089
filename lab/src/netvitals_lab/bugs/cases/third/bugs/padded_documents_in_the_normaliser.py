"""ListMLE: short lists are padded with a logit of nearly zero, and its exp enters every denominator.

source: https://github.com/huggingface/sentence-transformers/pull/3827
catalogue: github
field: learning to rank (ListMLE)
cause: ignore-index, reduction-wrong
observable: yes
"""
import torch
from torch import nn

import netvitals as nv

w = torch.randn(8)


def queries(n, longest=40):
    """Most queries have two or three documents, the longest list in the batch decides about the padding."""
    length = torch.randint(2, 4, (n,))
    length[0] = longest
    x = torch.randn(n, longest, 8) + 3
    relevance = (x @ w) + 0.3 * torch.randn(n, longest)
    mask = torch.arange(longest) < length.unsqueeze(1)
    order = relevance.masked_fill(~mask, -1e9).argsort(1, descending=True)
    return x.gather(1, order.unsqueeze(2).expand_as(x)), mask


def list_mle(logits, mask):
    """Documents stand in their true order."""
    logits = logits.masked_fill(~mask, 1e-16)
    scores = logits.exp()  # bug
    # fix: scores = logits.exp() * mask
    cumsum = scores.flip(1).cumsum(1).flip(1)
    log_probs = logits - torch.log(cumsum + 1e-10)
    return -(log_probs * mask).sum(1).mean()


model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=2e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(300):
        x, mask = queries(32)
        loss = list_mle(model(x).squeeze(2), mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

x, mask = queries(2000, longest=4)
with torch.no_grad():
    s = model(x).squeeze(2)
score = float((s[1:, 0] > s[1:, 1]).float().mean())
learned = score > 0.85
