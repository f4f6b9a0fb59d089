"""Closed forms: RLCT, fluctuation, rates of architectures, volumes, geometry."""
