"""A processor puts all texts of a batch into one row; broadcasting hides that 31 of 32 are lost.

source: https://github.com/huggingface/transformers/issues/34204
catalogue: traincheck
field: vision and language
cause: inputs-lost, layout-mixed
observable: yes
"""
import torch
from torch import nn

import netvitals as nv


class Processor:
    """Pads the prompts and stacks the images."""

    def __call__(self, prompts, images):
        rows = [prompts[0]]  # bug
        # fix: rows = prompts
        length = max(len(row) for row in rows)
        ids = torch.tensor([row + [0] * (length - len(row)) for row in rows])
        return {"input_ids": ids, "pixel_values": torch.stack(images)}


class VisionLanguage(nn.Module):
    """Answers a question on an image: is the object of the asked colour in the picture?"""

    def __init__(self, words=12, dim=32):
        super().__init__()
        self.words = nn.Embedding(words, dim, padding_idx=0)
        self.vision = nn.Sequential(nn.Conv2d(6, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveMaxPool2d(1),
                                    nn.Flatten(), nn.Linear(32, dim))
        self.answer = nn.Sequential(nn.Linear(2 * dim, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, input_ids, pixel_values):
        image = self.vision(pixel_values)
        text = self.words(input_ids).sum(1)
        image, text = torch.broadcast_tensors(image, text)
        return self.answer(torch.cat([image, text], 1))


def example():
    image = torch.zeros(6, 6, 6)
    present = torch.randperm(6)[:3]
    for colour in present:
        image[colour, torch.randint(6, ()), torch.randint(6, ())] = 1.0
    asked = int(torch.randint(6, ()))
    fillers = torch.randint(7, 12, (int(torch.randint(1, 4, ())),)).tolist()
    return fillers + [asked + 1], image + 0.05 * torch.randn(6, 6, 6), int(asked in present)


def accuracy(model, processor, data):
    with torch.no_grad():
        right = [model(**processor([p], [i])).argmax(1).item() == a for p, i, a in data]
    return sum(right) / len(right)


data = [example() for _ in range(1400)]
train, test = data[:1200], data[1200:]
processor = Processor()
model = VisionLanguage()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
with nv.watch(model, optimizer) as watch:
    for epoch in range(15):
        for rows in torch.randperm(len(train)).split(32):
            prompts, images, answers = zip(*(train[i] for i in rows))
            batch = processor(list(prompts), list(images))
            loss = nn.functional.cross_entropy(model(**batch), torch.tensor(answers))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss)

score = accuracy(model, processor, test)
learned = score > 0.9
