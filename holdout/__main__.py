"""``python -m holdout``, the same as ``holdout``."""

import sys

from holdout import shadowed


def main() -> None:
    """Run the command line."""
    if problem := shadowed():
        print(problem, file=sys.stderr)
        sys.exit(2)
    from holdout.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
