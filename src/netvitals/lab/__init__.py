"""The laboratory: what reproduces the papers. The instrument never imports it."""
