"""Dead directions of one checkpoint, or of several: readout, static readings, and their history."""
