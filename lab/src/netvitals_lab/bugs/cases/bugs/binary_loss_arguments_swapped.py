"""A critic for image completion calls the logit loss with labels and logits in the wrong order.

source: https://github.com/bamos/dcgan-completion.tensorflow/commit/e2efc870054836172cbed70dfc08da6fc0ff2e04 (gDefects4DL dcgan-completion.tensorflow; sact1, models857 and models1220 are the same)
catalogue: gdefects4dl
field: real or fake classification
cause: loss-mismatch
observable: yes
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
faces = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 8 - 1


class Discriminator(nn.Module):
    def __init__(self, df_dim=16):
        super().__init__()
        self.h0 = nn.Conv2d(1, df_dim, 3, stride=2, padding=1)
        self.h1 = nn.Conv2d(df_dim, 2 * df_dim, 3, stride=2, padding=1)
        self.h2 = nn.Linear(2 * df_dim * 4, 1)

    def forward(self, image):
        h = F.leaky_relu(self.h0(image), 0.2)
        h = F.leaky_relu(self.h1(h), 0.2)
        return self.h2(h.flatten(1))


def completed(images):
    """Fills a hole in each picture with the patch of another picture."""
    other = images[torch.randperm(len(images))]
    mask = torch.zeros(8, 8)
    mask[2:6, 2:6] = 1.0
    return images * (1 - mask) + other * mask


model = Discriminator()
d_optim = torch.optim.Adam(model.parameters(), lr=2e-3)
with nv.watch(model, d_optim) as watch:
    for epoch in range(25):
        for rows in torch.randperm(1500).split(64):
            real = faces[rows]
            logits = torch.cat([model(real), model(completed(real))])
            labels = torch.cat([torch.ones(len(real), 1), torch.zeros(len(real), 1)])
            d_loss = F.binary_cross_entropy_with_logits(labels, logits)  # bug
            # fix: d_loss = F.binary_cross_entropy_with_logits(logits, labels)
            d_optim.zero_grad()
            d_loss.backward()
            d_optim.step()
            watch.step(d_loss)

with torch.no_grad():
    right = (model(faces[1500:]) > 0).float().mean() + (model(completed(faces[1500:])) < 0).float().mean()
    score = float(right / 2)
learned = score > 0.75
