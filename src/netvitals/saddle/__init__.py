"""Saddle escape: the imbalance identity, the reduced flow, escape times, plateau forecast."""
