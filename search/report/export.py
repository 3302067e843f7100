"""The comparison as a file: CSV for programs, Markdown and LaTeX for texts."""

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from search.report.text_tables import TextTable
from trainables.files import write_whole
from trainables.mistakes import Mistakes, raise_if_any

CSV_HEADER = (
    "search", "loss", "role", "trial", "against_search", "against_loss", "against_role", "metric", "stage", "epochs",
    "mean", "std", "ci95_low", "ci95_high", "seeds", "p", "p_holm",
)  # fmt: skip


def as_csv(comparison: Mapping[str, Any]) -> str:
    """One number a line: a row's value at a stage, a pair's difference, or a curve's value after some epochs."""
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV_HEADER, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_records(comparison))
    return text.getvalue()


def _records(comparison: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    objective = comparison["objective"]
    for row in comparison["rows"]:
        name = {"search": row["search"], "loss": row["loss"], "role": row["role"], "trial": row["number"]}
        if row["search_value"] is not None:
            yield {**name, "metric": objective, "stage": "search", "mean": row["search_value"]}
        for stage in ("confirmed", "final"):
            if row[stage]:
                yield {**name, "metric": objective, "stage": stage, **_statistics(row[stage])}
        for metric in comparison["test_metrics"] if row["test"] else ():
            yield {**name, "metric": metric, "stage": "test", **_statistics(row["test"][metric])}
    for pair in comparison["pairs"]:
        yield {
            **dict(zip(("search", "loss", "role"), pair["first"], strict=True)),
            **dict(zip(("against_search", "against_loss", "against_role"), pair["second"], strict=True)),
            "metric": pair["metric"],
            "stage": "test",
            "mean": pair["difference"],
            "ci95_low": pair["ci95"][0],
            "ci95_high": pair["ci95"][1],
            **{key: pair[key] for key in ("seeds", "p", "p_holm")},
        }
    for curve in comparison["anytime"]:
        name = {"search": curve["search"], "loss": curve["loss"], "metric": objective, "stage": "best so far"}
        for place in (entry for entry in curve["places"] if entry["value"] is not None):
            yield {**name, "epochs": place["epochs"], "mean": place["value"]}


def _statistics(entry: Mapping[str, Any]) -> dict[str, Any]:
    low, high = entry.get("ci95") or (None, None)
    return {
        "mean": entry["mean"],
        "std": entry["std"],
        "ci95_low": low,
        "ci95_high": high,
        "seeds": entry["seeds"],
    }


def as_markdown(shown: Sequence[TextTable]) -> str:
    """Sheets as Markdown tables with their notes."""
    return "\n".join(_markdown(text_table) for text_table in shown)


def _markdown(text_table: TextTable) -> str:
    lines = [f"## {_in_markdown(text_table.title)}", ""]
    if text_table.rows:
        rule = ["---"] * text_table.labels + ["---:"] * (len(text_table.header) - text_table.labels)
        table = [[_in_markdown(cell) for cell in row] for row in (text_table.header, *text_table.rows)]
        lines += [f"| {' | '.join(cells)} |" for cells in (table[0], rule, *table[1:])]
        lines.append("")
    return "\n".join([*lines, *(f"- {_in_markdown(note)}" for note in text_table.notes), ""])


def _in_markdown(text: str) -> str:
    return re.sub(r"([\\`*_|<])", r"\\\1", text).replace("\n", "<br>")


def as_latex(shown: Sequence[TextTable]) -> str:
    """Sheets as LaTeX tables with their notes; they need no package."""
    return "\n".join(_latex(text_table) for text_table in shown)


def _latex(text_table: TextTable) -> str:
    lines = []
    if text_table.rows:
        columns = "l" * text_table.labels + "r" * (len(text_table.header) - text_table.labels)
        table = [f"{' & '.join(_in_latex(cell) for cell in row)} \\\\" for row in (text_table.header, *text_table.rows)]
        lines += [r"\begin{table}", r"\centering", rf"\caption{{{_in_latex(text_table.title)}}}"]
        lines += [rf"\begin{{tabular}}{{{columns}}}", r"\hline", table[0], r"\hline", *table[1:], r"\hline"]
        lines += [r"\end{tabular}", r"\end{table}"]
    return "\n".join([*lines, *(f"{_in_latex(note)}.\n" for note in text_table.notes), ""])


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "±": r"$\pm$", "×": r"$\times$", "−": "$-$", "–": "--", "\n": " ", "|": r"\textbar{}",
    "[": "{[}",
}  # fmt: skip
"""``[`` at the beginning of a row would be taken for the length of the line break before it."""


def _in_latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


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


def write_output(path: Path, records: str, shown: Sequence[TextTable]) -> None:
    """Write ``records``, which are CSV, or the text_tables ``shown`` to ``path``, whole, in the format of its suffix.

    Raises:
        Mistakes: the file cannot be written.
    """
    content = {".csv": lambda: records, ".md": lambda: as_markdown(shown), ".tex": lambda: as_latex(shown)}[
        path.suffix
    ]()
    try:
        write_whole(path, lambda file: file.write(content.encode()))
    except OSError as error:
        raise Mistakes(f"--output {path}: it cannot be written ({error.strerror}); name another place.") from error
