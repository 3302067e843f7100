"""What ends a command without being a user's mistake."""


class Failure(RuntimeError):
    """What was asked for could not be done; the message says why and what helps. The exit code is 1."""
