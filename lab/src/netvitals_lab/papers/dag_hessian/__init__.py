"""Curvature over the architecture's graph: the paper's experiments 1–6, its identities, and the verdicts."""
