"""What a network is made of: its wiring, copies that run together, and how it is left as it was."""
