"""Word language model: LSTM with tied embedding, hidden state carried over and detached, rate quartered when stuck.

source: https://github.com/pytorch/examples/tree/main/word_language_model
field: recurrent language model
unusual: state passed from batch to batch in text order (no shuffling), plain SGD at a rate of several units, tied weights
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

vocabulary = 20
follow = torch.stack([torch.randperm(vocabulary) for _ in range(2)])


def corpus(n):
    """Two dialects that change every forty words or so; the dialect says which word follows."""
    words, dialect, word = [], 0, 0
    for turn, noise, jump in zip(torch.rand(n), torch.rand(n), torch.randint(0, vocabulary, (n,))):
        dialect = 1 - dialect if turn < 0.025 else dialect
        word = int(jump) if noise < 0.05 else int(follow[dialect, word])
        words.append(word)
    return torch.tensor(words)


class RNNModel(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.drop = nn.Dropout(0.1)
        self.encoder = nn.Embedding(vocabulary, dim)
        self.rnn = nn.LSTM(dim, dim)
        self.decoder = nn.Linear(dim, vocabulary)
        self.decoder.weight = self.encoder.weight
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)

    def forward(self, words, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(words)), hidden)
        return self.decoder(self.drop(output)).flatten(0, 1), hidden


def batchify(data, batches):
    return data[:len(data) // batches * batches].view(batches, -1).t().contiguous()


train, valid = batchify(corpus(16000), 20), batchify(corpus(3000), 20)
model, bptt, best = RNNModel(), 20, None
optimizer = torch.optim.SGD(model.parameters(), lr=5.0)
with nv.watch(model, optimizer) as watch:
    for epoch in range(6):
        model.train()
        hidden = None
        for i in range(0, len(train) - bptt - 1, bptt):
            hidden = hidden and tuple(h.detach() for h in hidden)
            optimizer.zero_grad()
            output, hidden = model(train[i:i + bptt], hidden)
            loss = F.cross_entropy(output, train[i + 1:i + 1 + bptt].flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            optimizer.step()
            watch.step(loss)
        model.eval()
        with torch.no_grad():
            val_loss = float(F.cross_entropy(model(valid[:-1], None)[0], valid[1:].flatten()))
        if best is None or val_loss < best:
            best = val_loss
        else:
            optimizer.param_groups[0]["lr"] /= 4

score = -best
learned = score > -1.3
