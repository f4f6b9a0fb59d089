"""Readings and laws turned into plain advice and forecasts."""
