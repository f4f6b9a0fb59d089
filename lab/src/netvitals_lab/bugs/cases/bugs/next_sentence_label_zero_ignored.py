"""BERT pretraining with one NLLLoss(ignore_index=0) for words and for is_next: "not next" is never trained.

source: https://github.com/codertimo/BERT-pytorch/issues/32 (and 49, 98)
catalogue: github
field: masked language model
cause: ignore-index
observable: yes
"""
import torch
from torch import nn

import netvitals as nv

PAD, MASK, SEP, words, half = 0, 1, 2, 20, 6


def batch(n):
    """A sentence counts upwards; the next sentence goes on where it stopped, another one starts anywhere."""
    first = torch.randint(0, words, (n, 1))
    is_next = torch.randint(0, 2, (n,))
    second = torch.where(is_next[:, None] == 1, first + half, torch.randint(0, words, (n, 1)))
    steps = torch.arange(half)
    tokens = torch.cat([(first + steps) % words + 3, torch.full((n, 1), SEP), (second + steps) % words + 3], 1)
    is_next = ((second - first) % words == half).long().squeeze(1)
    labels = torch.full_like(tokens, PAD)
    chosen = (torch.rand(tokens.shape) < 0.15) & (tokens > 2)
    labels[chosen] = tokens[chosen]
    return torch.where(chosen, MASK, tokens), labels, is_next


class BERTLM(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.token = nn.Embedding(words + 3, hidden, padding_idx=0)
        self.position = nn.Embedding(2 * half + 1, hidden)
        layer = nn.TransformerEncoderLayer(hidden, 4, 64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.mask_lm = nn.Linear(hidden, words + 3)
        self.next_sentence = nn.Linear(hidden, 2)

    def forward(self, x):
        h = self.encoder(self.token(x) + self.position(torch.arange(x.shape[1])))
        return self.next_sentence(h[:, half]).log_softmax(-1), self.mask_lm(h).log_softmax(-1)


class BERTTrainer:
    def __init__(self, model):
        self.model = model
        self.optim = torch.optim.Adam(model.parameters(), lr=3e-3, betas=(0.9, 0.98))
        self.criterion = nn.NLLLoss(ignore_index=0)
        self.next_criterion = self.criterion  # bug
        # fix: self.next_criterion = nn.NLLLoss()

    def iteration(self, data):
        tokens, labels, is_next = data
        next_output, mask_output = self.model(tokens)
        loss = self.next_criterion(next_output, is_next) + self.criterion(mask_output.transpose(1, 2), labels)
        self.optim.zero_grad()
        loss.backward()
        self.optim.step()
        return loss


trainer = BERTTrainer(BERTLM())
with nv.watch(trainer.model, trainer.optim) as watch:
    for step in range(280):
        watch.step(trainer.iteration(batch(32)))

with torch.no_grad():
    tokens, _, is_next = batch(500)
    score = float((trainer.model(tokens)[0].argmax(1) == is_next).float().mean())
learned = score > 0.72
