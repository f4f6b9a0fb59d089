"""The groups that the list of commands is shown in."""

START, RUNS, MODELS = "Get started", "Runs", "Models"
