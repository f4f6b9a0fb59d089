"""One folder per paper: its studies, claims and index."""
