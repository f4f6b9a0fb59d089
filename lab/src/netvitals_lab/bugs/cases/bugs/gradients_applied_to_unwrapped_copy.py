"""A multi-device wrapper copies the model; the loss goes through the copy and the optimizer has the original.

source: https://x.com/_MattJiang_/status/1942338254906261616 (TrainCheck, successful stories, case 2)
catalogue: traincheck
field: language model fine-tuning
cause: stale-parameters
observable: yes
"""
import copy

import torch
from torch import nn

import netvitals as nv


class TinyLM(nn.Module):
    def __init__(self, vocabulary=24, dim=32):
        super().__init__()
        self.emb = nn.Embedding(vocabulary, dim)
        self.rnn = nn.GRU(dim, 64, batch_first=True)
        self.out = nn.Linear(64, vocabulary)

    def forward(self, x):
        return self.out(self.rnn(self.emb(x))[0])


class MultiDevice(nn.Module):
    """Runs each part of the batch on its own replica."""

    def __init__(self, module, devices=1):
        super().__init__()
        self.module = copy.deepcopy(module)  # bug
        # fix: self.module = module
        self.devices = devices

    def forward(self, x):
        return torch.cat([self.module(part) for part in x.chunk(self.devices)])


text = [torch.cat([torch.arange(start, start + 12), torch.arange(start + 12, start, -1)]) % 24 for start in range(24)]
text = torch.stack(text)
model = TinyLM()
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-3, weight_decay=0.01)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, 20)
parallel = MultiDevice(model, devices=2)
grad_norms = []
with nv.watch(model, optimizer) as watch:
    for step in range(120):
        batch = text[torch.randint(0, 24, (16,))]
        logits = parallel(batch[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        parallel.zero_grad()
        loss.backward()
        grad_norms.append(nn.utils.clip_grad_norm_(parallel.parameters(), 1.0).item())
        optimizer.step()
        scheduler.step()
        watch.step(loss)

score = -float(loss)
learned = score > -0.8
