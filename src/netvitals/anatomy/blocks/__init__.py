"""The blocks of a charted model: layers, norms, attention, gated MLPs, experts, streams, recurrence, roles."""
