"""What a watch is made of: its arguments, the steps it counts, its ranks, how it ends, and what it has seen."""
