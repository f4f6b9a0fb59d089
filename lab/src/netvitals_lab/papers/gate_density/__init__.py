"""Variance collapse and gate density: the paper's experiments E1–E17, its claims C1–C16, and what goes beyond it."""
