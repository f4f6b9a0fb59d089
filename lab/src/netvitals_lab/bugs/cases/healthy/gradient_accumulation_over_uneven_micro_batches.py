"""Gradient accumulation: four micro-batches of texts of different length, normalised by all their words.

source: https://huggingface.co/blog/gradient_accumulation
field: sequence tagging
unusual: four backward passes per step; the micro losses are sums over a common count
"""
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

import netvitals as nv


def sentence():
    """The tag says whether the word was seen before in this sentence."""
    words = torch.randint(1, 15, (int(torch.randint(4, 16, ())),))
    tags = torch.tensor([int(w in words[:i]) for i, w in enumerate(words)])
    return words, tags


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(15, 32, padding_idx=0)
        self.lstm = nn.LSTM(32, 64, batch_first=True)
        self.out = nn.Linear(64, 2)

    def forward(self, words, lengths):
        packed = pack_padded_sequence(self.embed(words), lengths, batch_first=True, enforce_sorted=False)
        return self.out(pad_packed_sequence(self.lstm(packed)[0], batch_first=True)[0])


def collate(rows):
    words, tags = zip(*rows)
    lengths = torch.tensor([len(w) for w in words])
    return pad_sequence(words, True), lengths, pad_sequence(tags, True, padding_value=-100)


data = [sentence() for _ in range(1200)]
model = Tagger()
optimizer = torch.optim.Adam(model.parameters(), lr=8e-3)
micro, accumulate = 8, 4
with nv.watch(model, optimizer) as watch:
    for step in range(80):
        micro_batches = [collate([data[i] for i in torch.randint(0, 1000, (micro,))]) for _ in range(accumulate)]
        count = sum(int((tags != -100).sum()) for _, _, tags in micro_batches)
        optimizer.zero_grad()
        total = 0.0
        for words, lengths, tags in micro_batches:
            logits = model(words, lengths).flatten(0, 1)
            loss = nn.functional.cross_entropy(logits, tags.flatten(), reduction="sum") / count
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        watch.step(total)

with torch.no_grad():
    words, lengths, tags = collate(data[1000:])
    wanted = tags != -100
    score = float((model(words, lengths).argmax(-1) == tags)[wanted].float().mean())
learned = score > 0.75
