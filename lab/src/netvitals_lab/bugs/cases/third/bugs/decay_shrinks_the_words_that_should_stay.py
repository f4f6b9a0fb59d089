"""Textual inversion: one new word is trained, the gradients of all others are zeroed, but AdamW's decay shrinks them.

source: https://github.com/huggingface/diffusers/issues/1176
catalogue: github
field: personalised generation (textual inversion)
cause: weight-decay-too-strong, not-frozen
observable: yes
"""
import copy

import torch
from torch import nn

import netvitals as nv

WORDS, NEW = 40, 40  # number 40 is the new word


class TextToPicture(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS + 1, 16)
        self.draw = nn.Sequential(nn.Linear(48, 64), nn.SiLU(), nn.Linear(64, 30))

    def forward(self, words):
        return self.draw(self.embed(words).flatten(1))


looks = torch.randn(WORDS + 1, 30)
model = TextToPicture()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(500):  # the pretrained model paints the mean of three words
    words = torch.randint(0, WORDS, (64, 3))
    opt.zero_grad()
    (model(words) - looks[words].mean(1)).pow(2).mean().backward()
    opt.step()
model.draw.requires_grad_(False)

original = copy.deepcopy(model.embed.weight.data)
optimizer = torch.optim.AdamW(model.embed.parameters(), lr=2e-2, weight_decay=0.2)
with nv.watch(model, optimizer) as watch:
    for step in range(400):
        words = torch.randint(0, WORDS, (16, 3))
        words[:, 0] = NEW
        loss = (model(words) - looks[words].mean(1)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        model.embed.weight.grad[:NEW] = 0  # only the new word learns
        optimizer.step()
        # fix: with torch.no_grad():
        # fix:     model.embed.weight[:NEW] = original[:NEW]
        watch.step(loss)

with torch.no_grad():
    words = torch.randint(0, WORDS, (500, 3))
    score = 1 - float((model(words) - looks[words].mean(1)).pow(2).mean() / looks[words].mean(1).var())
learned = score > 0.6
