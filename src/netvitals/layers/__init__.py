"""Norms a user can swap in, and model surgery."""
