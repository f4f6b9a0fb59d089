"""The networks of the rate table: a configuration in plain values, and what it stands for."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from netvitals.singular import predict_rates
from netvitals.singular.networks.architecture import AttentionChain, Chain, SwiGLUStack
from netvitals.singular.networks.builders import Autoencoder, BlockPair, Memorised, PreNormProbe, Superposition
from netvitals_lab import Config

KINDS: dict[str, Any] = {
    "chain": Chain,
    "attention": AttentionChain,
    "swiglu": SwiGLUStack,
    "autoencoder": Autoencoder,
    "superposition": Superposition,
    "pair": BlockPair,
    "pre-norm": PreNormProbe,
    "memorised": Memorised,
}
USUAL = [float(t) for t in np.geomspace(10**-3, 10**-1.3, 6)]
SMALL = [1e-4, 2e-4, 4e-4, 1e-3]  # LayerNorm is asymptotic only here
TINY = [1e-8, 1e-7, 1e-6]  # … and after a ReLU, which can leave the norm almost nothing, only here
WIDE = [float(t) for t in np.geomspace(1e-2, 1e-1, 6)]  # SwiGLU stacks: t^42 must stay above zero
NAMES = ("linear", "relu", "gelu", "tanh")
FULL = 1000  # samples from which on all combinations of a sweep are run


def configurations(samples: int) -> Iterator[Config]:
    """Every configuration of the table; ``topic`` is what claims ask by."""

    def one(topic: str, kind: str, options: dict[str, Any], ts: list[float] = USUAL, **probe: Any) -> Config:
        return {
            "check": "probe",
            "topic": topic,
            "kind": kind,
            "options": options,
            "ts": ts,
            "probe": {"samples": samples, **probe},
        }

    for name in NAMES:
        yield one("ladder", "chain", {"depth": 6, "activation": name})
        yield one("cross-entropy", "chain", {"depth": 4, "activation": name}, loss="ce", samples=min(samples, 600))
        yield one(
            "per-layer skips", "chain", {"depth": 3, "activation": name, "skips": [[0, 1], [1, 2], [2, 3]]}, SMALL
        )
        yield one("rotation", "chain", {"depth": 4, "activation": name, "rotation": 0.1})
        yield one("autoencoder", "autoencoder", {"activation": name}, noise=0.0)
    for seed in (1, 2):  # Tables 1 and 2 rest on three seeds
        for name in NAMES:
            yield one("ladder", "chain", {"depth": 6, "activation": name}, seed=seed)
    for seed in (42, 142, 242, 342, 442):  # Table 7
        for name in NAMES:
            yield one("autoencoder", "autoencoder", {"activation": name}, noise=0.0, seed=seed)
    for depth, name in ((2, "linear"), (3, "linear"), (2, "relu")):
        yield one("noise-free", "chain", {"depth": depth, "activation": name}, noise=0.0)
    yield one("noise-free", "autoencoder", {"identity": False}, noise=0.0)
    for depth, skips in ((4, [[2, 4]]), (4, [[1, 3]]), (6, [[1, 3], [3, 6]])):
        yield one("skips", "chain", {"depth": depth, "skips": skips})
    for name in ("linear", "gelu", "tanh"):
        wide = {"depth": 4, "widths": [5, 9, 7, 6, 8], "activation": name}
        yield one("rectangular", "chain", wide)
        yield one("rectangular, cross-entropy", "chain", wide, loss="ce", samples=min(samples, 600))
        for norms in ([1], [3], [1, 2, 3]):
            yield one("layer norm", "chain", {"depth": 4, "activation": name, "norm_after": norms}, SMALL)
    for norms in ([4], [2], [2, 4]):
        yield one("layer norm", "chain", {"depth": 6, "norm_after": norms}, SMALL)
    yield one("layer norm", "chain", {"depth": 4, "activation": "relu", "norm_after": [3]}, SMALL)
    yield one("layer norm closes ReLU", "chain", {"depth": 4, "activation": "relu", "norm_after": [1]}, TINY)
    for name in NAMES:
        # two norms in a homogeneous chain leave t^10, which rounding hides in this window
        for depth, norms in ((4, [1]), (4, [3]), (6, [2]), *(((6, [1, 4]),) if name in ("gelu", "tanh") else ())):
            options = {"depth": depth, "activation": name, "norm_after": norms, "norm": "rms"}
            yield one("rms norm", "chain", options, SMALL)
    for direction in (0, 1):
        yield one(
            "several directions", "chain", {"depth": 4, "exponents": [[1, 2, 1, 3], [2, 1, 2, 1]]}, direction=direction
        )
    yield one("several directions", "chain", {"depth": 4, "exponents": [[1, 1, 1, 1], [1, 1, 1, 1]]}, direction=1)
    for name, q in (("linear", 1), ("relu", 1), ("gelu", 2)):
        yield one("biases", "chain", {"depth": 4, "activation": name, "bias": q})
    yield one(
        "biases alone", "chain", {"depth": 4, "activation": "gelu", "exponents": [[0, 0, 0, 0]], "bias": 1}, SMALL
    )
    few = min(samples, 64)
    for blocks in range(1, 7):
        yield one("attention", "attention", {"blocks": blocks, "tokens": 5, "width": 6}, samples=few)
    for options in ({"causal": True}, {"heads": 2}, {"heads": 3}, {"tokens": 16, "width": 4}, {"width": 12}):
        yield one("attention", "attention", {"blocks": 3, "tokens": 5, "width": 6, **options}, samples=few)
    for options in ({"residual": True}, {"norm": True}, {"residual": True, "norm": True}):
        yield one(
            "attention, reset", "attention", {"blocks": 3, "tokens": 5, "width": 6, **options}, SMALL, samples=few
        )
    for n in (1, 2, 3):
        yield one("swiglu", "swiglu", {"blocks": n}, WIDE)
        for gate in ("gelu", "relu", "linear", "sigmoid"):
            yield one("gated", "swiglu", {"blocks": n, "gate": gate}, WIDE)
    sweep = list(product((1, 2, 3), (1, 2, 3, 4), (3, 5, 8), (False, True)))  # X18: all heads share the dead direction
    for heads, blocks, tokens, causal in sweep if samples >= FULL else sweep[::17]:
        options = {"heads": heads, "blocks": blocks, "tokens": tokens, "causal": causal, "width": 6}
        for seed in range(3):
            yield one("heads", "attention", options, samples=few, seed=seed)
    for kinds in ("MM", "MA", "AM", "AA"):
        yield one("pair", "pair", {"kinds": kinds}, samples=few)
    for seed in range(3):
        yield one("superposition", "superposition", {"seed": seed}, noise=0.0)
    yield one("superposition, noisy", "superposition", {})
    for probe in range(3):
        for name in ("gelu", "relu"):
            yield one("pre-norm", "pre-norm", {"probe": probe, "activation": name}, SMALL)
    for deepens in (0.0, 0.5):
        for fisher in ("expected", "empirical"):
            yield one(
                "memorised",
                "memorised",
                {"deepens": deepens},
                [1e-4, 3e-4, 1e-3, 3e-3],
                loss="ce",
                fisher=fisher,
                samples=min(samples, 400),
            )


def network(config: Config) -> Any:
    """The architecture of a configuration."""
    options = {k: _tupled(v) for k, v in config["options"].items()}
    return KINDS[config["kind"]](**options)


def predicted(config: Config) -> dict[str, dict[str, float | None]]:
    """Exponents by readout and layer, None where the theory makes no statement."""
    net, probe = network(config), config["probe"]
    if config["topic"] == "attention, reset":  # Proposition 69: a skip or a norm resets to 0, 2, 2, 2
        return {"G": {f"block{b}.{c}": 0.0 if c == "o" else 2.0 for b in range(net.blocks) for c in "qkvo"}}
    if isinstance(net, Chain | AttentionChain | SwiGLUStack):
        rates = predict_rates(net, noisy=probe.get("noise", 1.0) != 0, direction=probe.get("direction", 0))
        out: dict[str, dict[str, float | None]] = {"G": rates.G, "A": rates.A}
        if probe.get("loss") != "ce":  # the head's Schur complement is zero there: the logit shift
            out["product"] = rates.product
        name = "forward" if isinstance(net, AttentionChain | SwiGLUStack) else "stream"
        return {**out, name: {f"X{i}": v for i, v in enumerate(rates.stream)}}
    text = net.predicted(probe["fisher"]) if isinstance(net, Memorised) else net.predicted
    shift = 4.0 if probe.get("noise") == 0 and not getattr(net, "identity", False) else 0.0
    return {"G": {k: v + shift for k, v in text.items()}}


def _tupled(value: Any) -> Any:
    return tuple(_tupled(v) for v in value) if isinstance(value, list) else value
