"""The vital signs, one file each."""
