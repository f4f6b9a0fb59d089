"""Looks that only a forecast needs: the plateau's."""
