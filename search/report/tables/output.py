"""Tables as files: CSV for programs, Markdown and LaTeX for texts."""

from collections.abc import Sequence
from pathlib import Path

from search.report.tables.latex import as_latex
from search.report.tables.markdown import as_markdown
from search.report.tables.text_table import TextTable
from trainables.files.whole import write_text
from trainables.mistakes import Mistakes, raise_if_any

FORMATS = (".csv", ".md", ".tex")


def refuse_unknown(paths: Sequence[Path]) -> None:
    """Every file's suffix says its format.

    Raises:
        Mistakes: for those whose suffix says none.
    """
    raise_if_any(
        [
            f"--output {path}: the file's suffix says its format and must be one of {', '.join(FORMATS)}; "
            f"it is {path.suffix!r}."
            for path in paths
            if path.suffix not in FORMATS
        ]
    )


def write_output(path: Path, csv: str, tables: Sequence[TextTable]) -> None:
    """Write ``csv``, or ``tables`` as Markdown or LaTeX, to ``path``, in the format of its suffix.

    Raises:
        Mistakes: the file cannot be written.
    """
    content = {".csv": lambda: csv, ".md": lambda: as_markdown(tables), ".tex": lambda: as_latex(tables)}[path.suffix]()
    try:
        write_text(path, content)
    except OSError as error:
        raise Mistakes(f"--output {path}: it cannot be written ({error.strerror}); name another file.") from error
