"""Dead directions of one checkpoint, or of several: readout, examination, and their history."""
