"""``python -m netvitals``: the command line where its script is not on the path."""

from netvitals.cli import main

if __name__ == "__main__":
    main()
