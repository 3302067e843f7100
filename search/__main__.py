"""``python -m search`` is ``holdout``."""

from search.cli.main import main

if __name__ == "__main__":
    main()
