"""Optimisers: DDCAdam and its gauges, Muon, and the ablation optimisers."""
