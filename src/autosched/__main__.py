"""``python -m autosched`` is the `autosched` command."""

from autosched.cli import main

if __name__ == "__main__":
    main()
