"""The language model head does not shift the labels, the caller passes labels=inputs: it learns to copy.

source: https://github.com/huggingface/transformers/issues/3711 (gDefects4DL transformers3711)
catalogue: gdefects4dl
field: language model
cause: label-is-input
observable: yes
"""
import torch
from torch import nn

import netvitals as nv


class TransfoLMHead(nn.Module):
    def __init__(self, vocabulary=16, d_model=48):
        super().__init__()
        self.word_emb = nn.Embedding(vocabulary, d_model)
        self.pos_emb = nn.Embedding(32, d_model)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(d_model, 4, 96, dropout=0.0, batch_first=True) for _ in range(1))
        self.crit = nn.Linear(d_model, vocabulary)

    def forward(self, input_ids, labels=None):
        length = input_ids.shape[1]
        h = self.word_emb(input_ids) + self.pos_emb(torch.arange(length))
        causal = nn.Transformer.generate_square_subsequent_mask(length)
        for layer in self.layers:
            h = layer(h, src_mask=causal, is_causal=True)
        logits = self.crit(h)
        if labels is None:
            return logits
        # fix: logits, labels = logits[:, :-1], labels[:, 1:]
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


table = torch.stack([torch.randperm(16) for _ in range(2)])  # the grammar: two continuations for each word


def sample(n, length=16):
    words = [torch.randint(0, 16, (n,))]
    for _ in range(length - 1):
        words.append(table[(torch.rand(n) < 0.2).long(), words[-1]])
    return torch.stack(words, 1)


model = TransfoLMHead()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(250):
        text = sample(32)
        loss = model(text, labels=text)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    text = sample(200)
    score = float((model(text)[:, :-1].argmax(-1) == text[:, 1:]).float().mean())
learned = score > 0.7
