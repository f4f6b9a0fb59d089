"""Optimisers: DDCAdam and its gauges, Muon, and the ablation optimisers."""

from netvitals.optim.muon import Muon, MuonAdamW, fused_parts, muon_split, newton_schulz

__all__ = ["Muon", "MuonAdamW", "fused_parts", "muon_split", "newton_schulz"]
