"""Copies of one model with parameters of their own, run together."""
