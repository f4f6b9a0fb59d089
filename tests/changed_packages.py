"""The tests of the packages that were changed since the last commit: what ``make check`` runs."""

from __future__ import annotations

import subprocess
from pathlib import Path

HOUSE = Path(__file__).parents[1]
USUAL = (
    "tests/test_watch.py",
    "tests/test_checkup.py",
    "tests/activations",
    "tests/gates",
)  # where nothing was changed


def paths_for(changed: list[str]) -> list[str]:
    """Test files and folders for changed files.

    >>> paths_for(["src/netvitals/gates/prediction.py", "src/netvitals/watch.py", "docs/page.md"])
    ['tests/gates', 'tests/test_watch.py']
    """
    found: dict[str, None] = {}
    for name in changed:
        parts = Path(name).parts
        if parts[:2] == ("src", "netvitals") and len(parts) > 3 and (HOUSE / "tests" / parts[2]).is_dir():
            deeper = HOUSE / "tests" / parts[2] / parts[3]
            found[f"tests/{parts[2]}/{parts[3]}" if deeper.is_dir() else f"tests/{parts[2]}"] = None
        elif parts[:2] == ("src", "netvitals"):
            found["tests/test_watch.py"] = None
        elif parts[0] == "tests" and parts[-1].startswith("test_") and (HOUSE / name).is_file():
            found[name] = None
    return list(found)


def main() -> None:
    """Print the paths."""
    git = ["git", "-C", str(HOUSE)]
    listed = subprocess.run([*git, "diff", "--name-only", "HEAD"], capture_output=True, text=True, check=False).stdout
    new = subprocess.run(
        [*git, "ls-files", "--others", "--exclude-standard"], capture_output=True, text=True, check=False
    ).stdout
    print(" ".join(paths_for([*listed.split(), *new.split()]) or USUAL))


if __name__ == "__main__":
    main()
