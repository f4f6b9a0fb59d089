"""Masked language model: the loss is already a mean, so multiplying it by the padding weights masks nothing.

source: https://github.com/d2l-ai/d2l-en/pull/2688
catalogue: github
field: masked language model
cause: reduction-wrong, ignore-index
observable: yes
"""
import torch
from torch import nn

import netvitals as nv

vocab_size, num_hiddens, max_len, max_pred = 30, 32, 12, 6


class MaskLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.token_embedding = nn.Embedding(vocab_size, num_hiddens)
        self.pos_embedding = nn.Parameter(torch.randn(1, max_len, num_hiddens) * 0.02)
        block = nn.TransformerEncoderLayer(num_hiddens, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, 1, enable_nested_tensor=False)
        self.mlp = nn.Sequential(nn.Linear(num_hiddens, num_hiddens), nn.ReLU(), nn.LayerNorm(num_hiddens),
                                 nn.Linear(num_hiddens, vocab_size))

    def forward(self, tokens, pred_positions):
        X = self.blocks(self.token_embedding(tokens) + self.pos_embedding)
        rows = torch.arange(len(X)).unsqueeze(1)
        return self.mlp(X[rows, pred_positions])


def get_batch(n):
    start = torch.randint(0, 27, (n, 1))
    tokens = (start + torch.arange(max_len)) % 27 + 2
    number = torch.randint(1, 4, (n, 1))  # how many of the six places for predictions are used
    positions = torch.rand(n, max_len).argsort(1)[:, :max_pred]
    weights = (torch.arange(max_pred) < number).float()
    answers = tokens.gather(1, positions) * weights.long()
    positions = positions * weights.long()
    masked = tokens.clone()
    rows, places = torch.nonzero(weights, as_tuple=True)
    masked[rows, positions[rows, places]] = 1
    return masked, positions, weights, answers


loss = nn.CrossEntropyLoss()  # bug
# fix: loss = nn.CrossEntropyLoss(reduction="none")
net = MaskLM()
trainer = torch.optim.Adam(net.parameters(), lr=4e-3)
with nv.watch(net, trainer) as watch:
    for step in range(380):
        tokens, pred_positions, mlm_weights, mlm_Y = get_batch(48)
        trainer.zero_grad()
        mlm_Y_hat = net(tokens, pred_positions)
        mlm_l = loss(mlm_Y_hat.reshape(-1, vocab_size), mlm_Y.reshape(-1)) * mlm_weights.reshape(-1, 1)
        # fix: mlm_l = loss(mlm_Y_hat.reshape(-1, vocab_size), mlm_Y.reshape(-1)) * mlm_weights.reshape(-1)
        mlm_l = mlm_l.sum() / (mlm_weights.sum() + 1e-8)
        mlm_l.backward()
        trainer.step()
        watch.step(mlm_l)

with torch.no_grad():
    tokens, pred_positions, mlm_weights, mlm_Y = get_batch(400)
    logits = net(tokens, pred_positions)[mlm_weights.bool()]
    score = -float(nn.functional.cross_entropy(logits, mlm_Y[mlm_weights.bool()]))
learned = score > -0.42
