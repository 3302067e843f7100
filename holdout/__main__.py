"""``python -m holdout``, the same as ``holdout``."""

from search.cli.main import main

if __name__ == "__main__":
    main()
