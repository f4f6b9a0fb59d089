"""pad_token = eos_token, and labels equal to the padding are set to -100: the model never learns to stop.

source: https://github.com/mlabonne/llm-course/issues/33
catalogue: github
field: instruction tuning
cause: ignore-index
observable: yes
silent: yes
"""
import torch
from torch import nn

import netvitals as nv

eos, ask, vocabulary = 0, 1, 30
pad = eos


def collate(rows):
    """Each row: a word, "?", then the answer: the word as often as it says, then the end."""
    length = max(len(r) for r in rows)
    input_ids = torch.tensor([r + [pad] * (length - len(r)) for r in rows])
    labels = input_ids.clone()
    labels[labels == pad] = -100  # bug
    # fix: labels[torch.arange(length) >= torch.tensor([[len(r)] for r in rows])] = -100
    labels[:, :2] = -100  # the prompt
    return input_ids, labels


def example():
    n = int(torch.randint(2, 8, ()))
    return [n, ask] + torch.arange(10, 10 + n).tolist() + [eos]


class TinyCausalLM(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, dim)
        self.rnn = nn.LSTM(dim, dim, 2, batch_first=True)
        self.lm_head = nn.Linear(dim, vocabulary)

    def forward(self, input_ids, labels=None):
        logits = self.lm_head(self.rnn(self.embed(input_ids))[0])
        if labels is None:
            return logits
        return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())

    @torch.no_grad()
    def generate(self, prompt, limit=16):
        ids = torch.tensor([prompt])
        while ids.shape[1] < limit:
            ids = torch.cat([ids, self(ids)[:, -1:].argmax(-1)], 1)
            if int(ids[0, -1]) == eos:
                break
        return ids[0].tolist()


model = TinyCausalLM()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
with nv.watch(model, optimizer) as watch:
    for step in range(300):
        input_ids, labels = collate([example() for _ in range(32)])
        loss = model(input_ids, labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        watch.step(loss)

right = [model.generate([n, ask]) == [n, ask] + list(range(10, 10 + n)) + [eos] for n in range(2, 8)]
score = sum(right) / 6
learned = score > 0.8
