"""A remark about a study."""

from search.report.results.result import Result


class Finding(Result):
    """``kind`` for programs, ``parameters`` it is about, and a ``sentence`` with the numbers behind it."""

    kind: str
    parameters: tuple[str, ...]
    sentence: str
