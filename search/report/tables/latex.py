"""Tables of text as LaTeX."""

from collections.abc import Sequence

from search.report.tables.text_table import TextTable


def as_latex(tables: Sequence[TextTable]) -> str:
    """LaTeX tables with their notes; they need no package."""
    return "\n".join(map(_latex, tables))


def _latex(table: TextTable) -> str:
    lines = []
    if table.rows:
        columns = "l" * table.labels + "r" * (len(table.header) - table.labels)
        header, *rows = [f"{' & '.join(map(_escaped, row))} \\\\" for row in (table.header, *table.rows)]
        lines += [r"\begin{table}", r"\centering", rf"\caption{{{_escaped(table.title)}}}"]
        lines += [rf"\begin{{tabular}}{{{columns}}}", r"\hline", header, r"\hline", *rows, r"\hline"]
        lines += [r"\end{tabular}", r"\end{table}"]
    return "\n".join([*lines, *(f"{_escaped(note)}.\n" for note in table.notes), ""])


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "±": r"$\pm$", "×": r"$\times$", "−": "$-$", "–": "--", "\n": " ", "|": r"\textbar{}",
    "[": "{[}",
}  # fmt: skip
"""``[`` at the beginning of a row would be taken for the length of the line break before it."""


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
