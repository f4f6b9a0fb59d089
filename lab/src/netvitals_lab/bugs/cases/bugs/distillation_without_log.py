"""Self-distillation: F.kl_div gets the student's probabilities instead of their logarithm.

source: https://github.com/microsoft/ProDA/issues/43
catalogue: github
field: knowledge distillation
cause: missing-log-softmax
observable: yes
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import netvitals as nv

digits = load_digits()
x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
labelled, unlabelled = torch.arange(len(x)) < 1000, torch.arange(len(x)) >= 1000

teacher = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
teacher_optimizer = torch.optim.Adam(teacher.parameters(), lr=3e-3)
for _ in range(200):  # stage one
    i = torch.randint(0, 1000, (64,))
    teacher_optimizer.zero_grad()
    F.cross_entropy(teacher(x[i]), y[i]).backward()
    teacher_optimizer.step()
teacher.eval().requires_grad_(False)

student = nn.Sequential(nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 10))
optimizer = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9)
pool = x[unlabelled]
T = 2.0
with nv.watch(student, optimizer) as watch:
    for step in range(400):  # stage two: no labels
        batch = pool[torch.randint(0, len(pool), (64,))]
        target = F.softmax(teacher(batch) / T, dim=1)
        out = student(batch) / T
        s = F.softmax(out, dim=1)  # bug
        # fix: s = F.log_softmax(out, dim=1)
        loss = F.kl_div(s, target, reduction="batchmean") * T * T
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():
    p, q = F.softmax(teacher(x), 1), F.softmax(student(x), 1)
score = 1 - float((p - q).abs().sum(1).mean()) / 2
learned = score > 0.85
