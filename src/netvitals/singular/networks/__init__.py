"""Networks built on a singular point, whose answers are known."""
