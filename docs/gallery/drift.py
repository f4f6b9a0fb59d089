"""Weight drift on a small GPT and a small ResNet: signs at the start, sparsity and spikes over training, the cliff.

    python docs/gallery/drift.py

The data are drawn here: a Markov chain for the GPT, ten noisy patterns for the ResNet. No folder and no network is needed.
"""

from __future__ import annotations

import torch
from exhibit import Piece, chain, next_token, options, patterns, show, watched, windows

import netvitals as nv
from netvitals import drift, layers
from netvitals.report import Plot, Series
from netvitals_lab import models

QUANTILES = (0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98)


def network(act: str, smoke: bool) -> torch.nn.Module:
    size = "depth=1,heads=2,width=16" if smoke else "depth=3,heads=4,width=64"
    return models.build(f"gpt-micro,vocab=32,context=32,act={act},{size}")


def gpt(act: str, smoke: bool) -> Piece:
    torch.manual_seed(0)
    model, steps = network(act, smoke), 20 if smoke else 400
    return Piece(
        name=f"drift-gpt-{act}",
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.1),
        loss_fn=next_token,
        draw=windows(chain(32, seed=0), 32, 16, seed=0),
        steps=steps,
        every=max(1, steps // 20),
    )


def over_training(runs: dict[str, nv.Run], vital: str, metric: str, label: str) -> Plot:
    """One line a run: the mean over its activations."""
    lines = []
    for name, run in runs.items():
        found = run.frame(vital, site="*.mlp.act", metric=metric)
        found = found.select("step", "value").group_by("step").mean().sort("step")
        lines.append(Series(name, found["step"].to_list(), found["value"].to_list(), line=True))
    return Plot("step", label, lines)


def resnet() -> torch.nn.Module:
    return models.build("resnet-mini,width=8,norm=none")


def at_sparsity(q: float, steps: int) -> tuple[float, float]:
    """Sparsity and accuracy of a ResNet whose activations stand behind norms at the quantile q."""
    torch.manual_seed(0)
    model, draw = resnet(), patterns(64, seed=0)
    layers.insert_norm(model, draw(0), to=f"quantile:{q}")
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(steps):
        x, y = draw(step)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    model.eval()
    held = [draw(1_000_003 + i) for i in range(16)]
    with torch.no_grad():
        right = torch.cat([model(x).argmax(1) == y for x, y in held])
    return drift.sparsity(model, held).mean, right.float().mean().item()


def main() -> None:
    arguments = options(__doc__ or "")
    out, smoke = arguments.out, arguments.smoke
    out.mkdir(parents=True, exist_ok=True)
    inits, runs, spikes = 4 if smoke else 32, {}, {}
    signs = {
        "gpt": drift.signs(lambda: network("relu", smoke), next_token, gpt("relu", smoke).draw(0), inits=inits),
        "resnet": drift.signs(resnet, "cross_entropy", patterns(64, seed=0)(0), inits=inits),
    }
    for name, found in signs.items():
        print(f"== Signs at initialisation, {name}\n{found}")
        found.plot().save(out / f"drift-signs-{name}.svg")
    for act in ("relu", "relu2", "gelu"):
        piece = gpt(act, smoke)
        runs[act] = watched(piece, out)
        held = [piece.draw(1_000_003 + i) for i in range(4)]
        spikes[act] = drift.spikes(piece.model, held, only="*.mlp.act")
        print(f"== GPT with {act}\n{drift.sparsity(piece.model, held)}\n{spikes[act]}")
        show(runs[act], f"GPT with {act}", arguments)
    over_training(runs, "sparsity", "neg_preact", "share of negative inputs").save(out / "drift-sparsity.svg")
    over_training(runs, "spikes", "max_abs", "largest activation, mean over layers").save(out / "drift-spikes.svg")
    print(f"Spikes of relu2 over those of relu: {drift.amplification(spikes['relu2'], spikes['relu']):.1f}")
    points = [at_sparsity(q, 4 if smoke else 150) for q in QUANTILES]
    print("== ResNet behind quantile norms")
    for q, (sparsity, accuracy) in zip(QUANTILES, points):
        print(f"  quantile {q:.2f}: sparsity {sparsity:.3f}, accuracy {accuracy:.3f}")
    cliff = drift.cliff(*zip(*points))
    print(cliff)
    cliff.plot().save(out / "drift-cliff.svg")
    print(f"\nThe pictures: {out}/drift-*.svg")


if __name__ == "__main__":
    main()
