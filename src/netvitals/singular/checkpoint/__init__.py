"""Dead directions of one checkpoint, or of several: readout, static measurements, and their history."""
