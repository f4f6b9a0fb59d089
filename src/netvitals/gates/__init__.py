"""Gate density: measured on a model, predicted from moments, forecast, and followed over training."""
