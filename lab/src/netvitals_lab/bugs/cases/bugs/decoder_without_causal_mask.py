"""Transformer decoder trained without a causal mask: each position reads its own answer, the loss falls to zero, nothing can be generated.

source: https://github.com/alex-matton/causal-transformer-decoder/issues/1
catalogue: github
field: language modelling (transformer)
cause: future-leak
observable: yes
"""
import torch
from torch import nn

import netvitals as nv

text = "the cat sat on the mat and the dog sat on the log while a bird sang in the tree near the old red barn. " * 12
chars = sorted(set(text))
data = torch.tensor([chars.index(c) for c in text])


class CharTransformer(nn.Module):
    def __init__(self, d=48, length=32):
        super().__init__()
        self.token, self.position = nn.Embedding(len(chars), d), nn.Embedding(length, d)
        layer = nn.TransformerEncoderLayer(d, 4, 96, dropout=0.1, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(d, len(chars))

    def forward(self, x):
        h = self.token(x) + self.position(torch.arange(x.size(1)))
        h = self.blocks(h)  # bug
        # fix: h = self.blocks(h, mask=nn.Transformer.generate_square_subsequent_mask(x.size(1)), is_causal=True)
        return self.head(h)


model = CharTransformer()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
criterion = nn.CrossEntropyLoss()
with nv.watch(model, optimizer) as watch:
    for step in range(150):
        starts = torch.randint(0, len(data) - 33, (24,))
        block = torch.stack([data[s : s + 33] for s in starts])
        logits = model(block[:, :-1])
        loss = criterion(logits.flatten(0, 1), block[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

model.eval()
right = 0
with torch.no_grad():
    for s in range(0, 200, 10):  # the next character after sixteen known ones
        right += int(model(data[s : s + 16].unsqueeze(0))[0, -1].argmax() == data[s + 16])
score = right / 20
learned = score > 0.8
