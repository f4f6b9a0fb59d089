"""λ of a small GPT-2 and of its parts over training, on real text.

    NETVITALS_DATA=FOLDER python docs/examples/gpt2_coefficient.py checkpoints
    cd docs/examples && NETVITALS_DATA=FOLDER netvitals singular coefficient gpt2_coefficient:make \
        checkpoints/*.pt --part 'first attention=transformer.h.0.attn.*' --part 'second attention=transformer.h.1.attn.*' \
        --chains 4 --draws 60 --localization 100 --html coefficient.html

The first line trains and saves a state dict now and then; the second is the picture: a curve with error bars for every
part, the loss beside it, and below it the health of all chains. FOLDER holds ``tinyshakespeare.txt``; without it
the text is this file. The picture takes half a minute for each part and checkpoint, and says of each point whether to
believe it: most are held by the well, because so little text does not determine so many weights.
"""

import os
import sys
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel

LENGTH, EXAMPLES = 16, 64
SAVED = (0, 100, 300, 1000)


def text() -> torch.Tensor:
    """Bytes of the text as windows (examples, length)."""
    folder = os.environ.get("NETVITALS_DATA")
    path = Path(folder, "tinyshakespeare.txt") if folder else Path(__file__)
    data = torch.tensor(list(path.read_bytes()[: LENGTH * EXAMPLES]), dtype=torch.long).clamp_max(127)
    return data[: len(data) // LENGTH * LENGTH].view(-1, LENGTH)


def make():
    """Model, loss (None: it holds its own) and data."""
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=128, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
    )
    model = GPT2LMHeadModel(config)
    windows = text()
    return model, None, {"input_ids": windows, "labels": windows}


def train(folder: str) -> None:
    """AdamW on the windows of the text, with checkpoints."""
    model, _, batch = make()
    Path(folder).mkdir(exist_ok=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    for step in range(max(SAVED) + 1):
        if step in SAVED:
            torch.save(model.state_dict(), Path(folder, f"step{step:05d}.pt"))
        rows = torch.randint(len(batch["labels"]), (32,))
        loss = model(**{k: v[rows] for k, v in batch.items()}).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    train(sys.argv[1] if len(sys.argv) > 1 else "checkpoints")
