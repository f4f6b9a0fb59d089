"""A transformer over table rows: (batch, sequence, features) goes into layers that expect the sequence first.

source: https://github.com/IBM/TabFormer/pull/14
catalogue: github
field: transformer for tabular sequences
cause: layout-mixed
observable: yes
"""
import torch
from torch import nn

import netvitals as nv


class TabFormer(nn.Module):
    """Is one transaction of the account far from the habit of this account?"""

    def __init__(self, columns=3, width=32):
        super().__init__()
        self.project = nn.Linear(columns, width)
        encoder_layer = nn.TransformerEncoderLayer(width, nhead=4, dim_feedforward=64, dropout=0.0)
        self.encoder = nn.TransformerEncoder(encoder_layer, num_layers=2)
        self.lm_head = nn.Linear(width, 1)

    def forward(self, rows):
        h = self.project(rows)
        h = self.encoder(h)  # bug
        # fix: h = self.encoder(h.transpose(0, 1)).transpose(0, 1)
        return self.lm_head(h).squeeze(-1)


def accounts(n, length=10):
    habit = torch.randn(n, 1, 3) * 2
    rows = habit + 0.3 * torch.randn(n, length, 3)
    fraud = (torch.rand(n, length) < 0.2).float()
    rows = rows + fraud.unsqueeze(-1) * 2.0 * torch.nn.functional.normalize(torch.randn(n, length, 3), dim=-1)
    return rows, fraud


def balanced(logits, target):
    guess = logits > 0
    return float((guess[target == 1].float().mean() + (~guess)[target == 0].float().mean()) / 2)


rows, fraud = accounts(2000)
test_rows, test_fraud = accounts(400)
model = TabFormer()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
criterion = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(4.0))
with nv.watch(model, optimizer) as watch:
    for epoch in range(4):
        for picked in torch.randperm(len(rows)).split(40):
            optimizer.zero_grad()
            loss = criterion(model(rows[picked]), fraud[picked])
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            watch.step(loss)

model.eval()
with torch.no_grad():
    score = balanced(torch.cat([model(r) for r in test_rows.split(40)]), test_fraud)
learned = score > 0.88
