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
    >>> paths_for(["lab/src/netvitals_lab/engine/claim.py"])
    ['lab/tests/engine']
    """
    paths: dict[str, None] = {}
    for name in changed:
        for package, tests in (("src/netvitals/", "tests"), ("lab/src/netvitals_lab/", "lab/tests")):
            if name.startswith(package):
                folders = [tests, *Path(name.removeprefix(package)).parts[:-1][:2]]
                while len(folders) > 1 and not HOUSE.joinpath(*folders).is_dir():
                    folders.pop()
                paths["/".join(folders) if len(folders) > 1 else "tests/test_watch.py"] = None
        if Path(name).name.startswith("test_") and (HOUSE / name).is_file():
            paths[name] = None
    return list(paths)


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
