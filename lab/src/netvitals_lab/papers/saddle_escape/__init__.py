"""Saddle escape: experiments E1–E5, the theorem checks, the 41 claims, and the plateau forecast."""
