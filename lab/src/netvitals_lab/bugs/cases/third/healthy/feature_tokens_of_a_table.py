"""FT-Transformer: every column of a table becomes a token; biases and norms are not decayed.

source: https://arxiv.org/abs/2106.11959
field: tabular data (FT-Transformer)
unusual: attention over columns, so their order means nothing; three parameter groups; missing values as a token of their own
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

NUMBERS, SIZES, DIM = 5, (4, 7, 3), 24
effect = [torch.randn(size) for size in SIZES]


def rows(n):
    x = torch.randn(n, NUMBERS)
    c = torch.stack([torch.randint(0, size, (n,)) for size in SIZES], 1)
    y = x[:, 0] * effect[0][c[:, 0]] + (x[:, 1] > effect[2][c[:, 2]]).float() + effect[1][c[:, 1]] * x[:, 2].abs()
    missing = torch.rand(n, NUMBERS) < 0.03
    return x.masked_fill(missing, float("nan")), c, y + 0.1 * torch.randn(n)


class FTTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(NUMBERS, DIM) / 4), nn.Parameter(torch.randn(NUMBERS, DIM) / 4)
        self.absent, self.cls = nn.Parameter(torch.randn(NUMBERS, DIM) / 4), nn.Parameter(torch.randn(1, 1, DIM) / 4)
        self.category = nn.Embedding(sum(SIZES), DIM)
        self.register_buffer("offset", torch.tensor([0, *SIZES[:-1]]).cumsum(0))
        self.blocks = nn.TransformerEncoder(nn.TransformerEncoderLayer(DIM, 4, 48, 0.0, batch_first=True, norm_first=True), 2, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(DIM), nn.ReLU(), nn.Linear(DIM, 1))

    def forward(self, x, c):
        gone = x.isnan().unsqueeze(2)
        tokens = torch.where(gone, self.absent, x.nan_to_num().unsqueeze(2) * self.weight + self.bias)
        tokens = torch.cat([self.cls.expand(len(x), -1, -1), tokens, self.category(c + self.offset)], 1)
        return self.head(self.blocks(tokens)[:, 0]).squeeze(1)


x_train, c_train, y_train = rows(2500)
model = FTTransformer()
matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "category" not in n]
others = [p for p in model.parameters() if all(p is not q for q in matrices)]
optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 1e-4}, {"params": others, "weight_decay": 0.0}], lr=2e-3)
with nv.watch(model, optimizer) as watch:
    for epoch in range(9):
        for i in torch.randperm(2500).split(64):
            loss = F.mse_loss(model(x_train[i], c_train[i]), y_train[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

model.eval()
with torch.no_grad():
    x, c, y = rows(1000)
    score = 1 - float(F.mse_loss(model(x, c), y) / y.var())
learned = score > 0.7
