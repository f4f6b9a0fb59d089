"""Decision transformer: when the data set is built, the step's return is filled with the action instead of the reward.

source: https://github.com/kzl/decision-transformer/issues/6
catalogue: github
field: offline reinforcement learning (decision transformer)
cause: inputs-lost, labels-wrong, label-leak
observable: no, states, actions and returns are plausible numbers; nothing says which column is the reward
"""
import torch
import torch.nn.functional as F
from torch import nn

import netvitals as nv

LENGTH, ACTIONS, DIM = 8, 4, 48


def rewards(states, actions):
    """The move that the state asks for pays one."""
    return (states.argmax(2) == actions).float()


def dataset(n):
    """Trajectories of players of very different skill."""
    states = torch.randn(n, LENGTH, ACTIONS)
    skill = torch.rand(n, 1)
    actions = torch.where(torch.rand(n, LENGTH) < skill, states.argmax(2), torch.randint(0, ACTIONS, (n, LENGTH)))
    stepwise_returns = actions.float()  # bug
    # fix: stepwise_returns = rewards(states, actions)
    rtg = stepwise_returns.flip(1).cumsum(1).flip(1)
    return states, actions, rtg


class DecisionTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.state, self.rtg, self.time = nn.Linear(ACTIONS, DIM), nn.Linear(1, DIM), nn.Embedding(LENGTH, DIM)
        self.action = nn.Embedding(ACTIONS + 1, DIM)
        self.layer = nn.TransformerEncoderLayer(DIM, 4, 96, dropout=0.0, batch_first=True, norm_first=True)
        self.head = nn.Linear(DIM, ACTIONS)

    def forward(self, states, previous, rtg):
        h = self.state(states) + self.rtg(rtg.unsqueeze(2) / LENGTH) + self.action(previous) + self.time(torch.arange(LENGTH))
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        return self.head(self.layer(h, src_mask=mask, is_causal=True))


def shifted(actions):
    return F.pad(actions[:, :-1], (1, 0), value=ACTIONS)


states, actions, rtg = dataset(3000)
model = DecisionTransformer()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
with nv.watch(model, optimizer) as watch:
    for step in range(350):
        i = torch.randint(0, 3000, (64,))
        loss = F.cross_entropy(model(states[i], shifted(actions[i]), rtg[i]).flatten(0, 1), actions[i].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch.step(loss)

with torch.no_grad():  # ask for a perfect game
    states = torch.randn(300, LENGTH, ACTIONS)
    played, total = torch.full((300, LENGTH), ACTIONS), torch.zeros(300)
    wish = torch.zeros(300, LENGTH)
    for t in range(LENGTH):
        wish[:, t] = LENGTH - total
        a = model(states, shifted(played), wish)[:, t].argmax(1)
        played[:, t] = a
        total += (states[:, t].argmax(1) == a).float()
score = float(total.mean()) / LENGTH
learned = score > 0.88
