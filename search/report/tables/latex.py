"""Tables of text as LaTeX."""

from collections.abc import Sequence

from search.report.tables.text_table import TextTable

BOLD = "Bold: the highest mean of its column, which need not be a significant difference."


def as_latex(tables: Sequence[TextTable]) -> str:
    """LaTeX tables with their notes, which need the package booktabs; the best of a column of the test is bold.

    pandas' ``Styler.to_latex`` would draw the same rules, but needs Jinja, knows no cell of several lines, and leaves
    ±, −, < and a row's first bracket as they are.
    """
    return "\n".join([r"% \usepackage{booktabs}", *map(_latex, tables)])


def _latex(table: TextTable) -> str:
    lines = []
    if table.rows:
        columns = "l" * table.labels + "r" * (len(table.header) - table.labels)
        header = " & ".join(map(_escaped, table.header))
        cells = [[_cell(table, row, column) for column in range(len(columns))] for row in range(len(table.rows))]
        caption = f"{table.title}. {BOLD}" if table.best else table.title
        lines += [r"\begin{table}", r"\centering", rf"\caption{{{_escaped(caption)}}}"]
        lines += [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", rf"{header} \\", r"\midrule"]
        lines += [rf"{' & '.join(row)} \\" for row in cells]
        lines += [r"\bottomrule", r"\end{tabular}", r"\end{table}"]
    return "\n".join([*lines, *(f"{_escaped(note)}.\n" for note in table.notes), ""])


def _cell(table: TextTable, row: int, column: int) -> str:
    """A cell's lines behind each other; the first one holds the mean."""
    first, *others = map(_escaped, table.rows[row][column].split("\n"))
    return " ".join([rf"\textbf{{{first}}}" if (row, column) in table.best else first, *others])


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "±": r"$\pm$", "×": r"$\times$", "−": "$-$", "–": "--", "\n": " ", "|": r"\textbar{}",
    "[": "{[}",
}  # fmt: skip
"""``[`` at the beginning of a row would be taken for the length of the line break before it."""


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
