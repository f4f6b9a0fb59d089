"""The Hessian between layers of a small ResNet and a small GPT: skip connections, layers to treat apart, coupling.

    python docs/gallery/curvature.py

The data are drawn here: ten noisy patterns for the ResNet, a Markov chain for the GPT. No folder, no network is needed.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from exhibit import Piece, chain, next_token, options, patterns, show, watched, windows
from scipy.stats import spearmanr

from netvitals import curvature
from netvitals.report import Plot, Series, curvature_pictures
from netvitals_lab import models


def resnet(smoke: bool, seed: int = 0) -> Piece:
    steps, width = (10, 4) if smoke else (300, 8)
    model = models.build(f"resnet18,channels=1,width={width}", seed=seed)
    return Piece(
        name="curvature-resnet",
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, nesterov=True, weight_decay=5e-4),
        loss_fn=torch.nn.functional.cross_entropy,
        draw=patterns(64, seed=seed),
        steps=steps,
        every=max(1, steps // 10),
    )


def gpt(smoke: bool) -> Piece:
    steps, size = (10, "depth=2,heads=2,width=16") if smoke else (300, "depth=3,heads=4,width=64")
    model = models.build(f"gpt-micro,vocab=32,context=32,act=gelu,{size}", seed=0)
    return Piece(
        name="curvature-gpt",
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.1),
        loss_fn=next_token,
        draw=windows(chain(32, seed=0), 32, 16, seed=0),
        steps=steps,
        every=max(1, steps // 10),
    )


def around(found: curvature.CurvatureGraph) -> dict[str, curvature.Route]:
    """Block → the edge that leads around its branch: the skip connection of the block."""
    return {r.via: r for r in found.skips if r.via in found.blocks}


def without_branch(model: torch.nn.Module, block: str, batch: Any) -> float:
    """The loss where the branch of one block is taken out."""
    cut = copy.deepcopy(model)
    norm = cut.get_submodule(block).norms[-1]
    with torch.no_grad():
        norm.weight.zero_()
        norm.bias.zero_()
    with torch.no_grad():
        return float(torch.nn.functional.cross_entropy(cut(batch[0]), batch[1]))


def skip_connections(piece: Piece, arguments: Any, probes: int) -> None:
    """Which skip connection carries the curvature, before and after training, and what its branch is worth."""
    batch = piece.draw(1_000_003)
    measure = lambda: curvature.graph(piece.model, piece.loss_fn, batch, mode="eval", probes=probes)
    before = around(measure())
    show(watched(piece, arguments.out), "ResNet-18", arguments)
    found = measure()
    after = around(found)
    print(f"== ResNet-18 after training\n{found}")
    print("  block: share of its skip connection before → after training; loss without its branch")
    for name, share, lost in worth(piece, after):
        print(f"  {name}: {before[name].share:.0%} → {share:.0%}; {lost:+.3f}")
    at = [float(i + 1) for i in range(len(after))]
    lines = [
        Series(label, at, [100 * shares[n].share for n in sorted(after)], line=True)
        for label, shares in (("before training", before), ("after training", after))
    ]
    Plot("block, from the input", "% of the curvature over its skip", lines).save(arguments.out / "curvature-skips.svg")


def worth(piece: Piece, skips: dict[str, curvature.Route]) -> list[tuple[str, float, float]]:
    """Block, share of its skip connection, and what the loss gains without its branch."""
    batch = piece.draw(1_000_003)
    piece.model.eval()
    with torch.no_grad():
        base = float(piece.loss_fn(piece.model(batch[0]), batch[1]))
    return [(n, r.share, without_branch(piece.model, n, batch) - base) for n, r in skips.items()]


def more_seeds(seeds: range, smoke: bool, probes: int) -> None:
    """Share of the skip connection and worth of the branch, of networks with other weights and patterns."""
    rows = []
    for seed in seeds:
        piece = resnet(smoke, seed)
        for step in range(piece.steps):
            x, y = piece.draw(step)
            piece.optimizer.zero_grad()
            piece.loss_fn(piece.model(x), y).backward()
            piece.optimizer.step()
        found = curvature.graph(piece.model, piece.loss_fn, piece.draw(1_000_003), mode="eval", probes=probes)
        rows += worth(piece, around(found))
    rank = spearmanr([r[1] for r in rows], [r[2] for r in rows])
    print(
        f"== Branches of {len(seeds)} networks: share of the skip connection against what the loss gains without the branch"
    )
    print("  " + " | ".join(f"{share:.0%} {lost:+.2f}" for _, share, lost in sorted(rows, key=lambda r: r[1])))
    print(f"  rank correlation {rank.statistic:+.2f} (p = {rank.pvalue:.1g}, {len(rows)} branches)")


def apart(piece: Piece, arguments: Any, probes: int) -> None:
    """Blocks between the weights of layers, and Corollary 17's bound on each."""
    batch = tuple(t[:16] for t in piece.draw(1_000_004))
    nodes = [f"stages.{i}.{k}" for i in range(4) for k in range(2)]
    found = {
        w: curvature.graph(
            piece.model, piece.loss_fn, batch, mode="eval", nodes=nodes, of=w, probes=probes, weights=True
        )
        for w in nodes
    }
    size = {w: found[w].weights[w].total for w in nodes}
    relative = {
        (v, w): (b.total / (size[v] * size[w]) ** 0.5, b.bound / (size[v] * size[w]) ** 0.5)
        for w in nodes
        for v, b in found[w].weights.items()
        if v in size and nodes.index(v) > nodes.index(w)
    }
    worst = max(relative, key=lambda p: relative[p][0])
    least = min(relative, key=lambda p: relative[p][0])
    print("== Weights of the ResNet's blocks: coupling, and the most that Corollary 17 allows")
    for v, w in (worst, least):
        print(f"  {w} and {v}: {relative[v, w][0]:.3f}, at most {relative[v, w][1]:.1f}")
    b = found[worst[1]].weights[worst[0]]
    print(f"  {worst[1]} and {worst[0]}: {b}")
    held = sum(b.total <= b.bound for f in found.values() for b in f.weights.values())
    print(f"  the bound holds in {held} of {sum(len(f.weights) for f in found.values())} blocks")
    ratios = sorted(most / size for size, most in relative.values())
    print(
        f"  the bound is {ratios[0]:.0f} to {ratios[-1]:.0f} times what is measured, couplings are {relative[least][0]:.2f} to "
        f"{relative[worst][0]:.2f}"
    )
    gaps = sorted(relative, key=lambda p: nodes.index(p[0]) - nodes.index(p[1]))
    distance = [float(nodes.index(v) - nodes.index(w)) for v, w in gaps]
    lines = [
        Series(label, distance, [relative[p][i] for p in gaps])
        for i, label in enumerate(("measured coupling", "bound of Corollary 17"))
    ]
    Plot("blocks apart", "coupling of the weights", lines, log_y=True).save(arguments.out / "curvature-apart.svg")


def coupling(piece: Piece, arguments: Any, probes: int) -> None:
    """Activation space of the GPT, by probes and against the dense Hessian."""
    show(watched(piece, arguments.out), "GPT", arguments)
    x, y = (t[:4, :8] for t in piece.draw(1_000_003))
    piece.model.eval()
    report = curvature.report(piece.model, piece.loss_fn, (x, y), probes=probes, optimizer=piece.optimizer)
    page = report.to_html(arguments.out / "curvature-gpt-page.html")
    print(f"== GPT\n{report}\n\nThe page of its curvature: {page}")
    names = report.activations.nodes
    few = [curvature.between_layers(piece.model, piece.loss_fn, (x, y), nodes=names, seed=s) for s in range(3)]
    exact = curvature.between_layers(piece.model, piece.loss_fn, (x, y), nodes=names, method="exact")
    for key in ("resonance", "coupling", "gn_gap"):
        z = [(getattr(f, key) - getattr(exact, key)) / getattr(f, key + "_stderr") for f in few]
        inner = torch.tensor([[m[i, k] for i in range(len(names)) for k in range(i)] for m in z])
        error = max(abs(getattr(f, key) / getattr(exact, key) - 1).max() for f in few)
        print(f"  {key}: largest error of 30 probes {error:.1%}, z from {inner.min():+.1f} to {inner.max():+.1f}")
    for weight in ("coupling", "gn_gap"):
        svg = curvature_pictures.heatmap_svg(exact, weight, 60)
        (arguments.out / f"curvature-{weight.replace('_', '-')}.svg").write_text(svg, encoding="utf-8")


def main() -> None:
    arguments = options(__doc__ or "")
    probes = 4 if arguments.smoke else 16
    piece = resnet(arguments.smoke)
    skip_connections(piece, arguments, probes)
    more_seeds(range(1, 2 if arguments.smoke else 5), arguments.smoke, probes)
    apart(piece, arguments, probes)
    coupling(gpt(arguments.smoke), arguments, probes)
    print(f"\nThe pictures: {arguments.out}/curvature-*.svg")


if __name__ == "__main__":
    main()
