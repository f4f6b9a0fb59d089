"""The groups that the list of commands is shown in."""

START, RUNS, MODELS, PAPERS = "Get started", "Runs", "Models (PKG:FACTORY)", "The papers"
