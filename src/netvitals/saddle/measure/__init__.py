"""On a real network: imbalance, plateau, bottleneck, forecast."""
