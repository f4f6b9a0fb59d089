"""Pictures of an anatomy: an outline in text, and a page that folds."""
