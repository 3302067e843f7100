"""The tables and figures of the papers, and the command that makes each of them."""

from collections.abc import Mapping

from pydantic import Field, model_validator

from search.config.recipes import shipped
from search.config.sections.section import Section
from search.config.validation.validation_errors import validate
from search.config.yaml_file import read_yaml
from trainables.mistakes import Mistakes, suggestion


class PaperItem(Section):
    """One table or figure.

    Either it is ``conceptual``, which says why no command makes it; or ``small`` makes it in minutes on two cores,
    ``full`` in the paper's setting, and ``shown`` says where the result stands. ``missing`` is what no command makes of
    it yet. Commands are lines for a shell, several of them with ``&&`` between; ``DIR`` stands for the folder of a data
    set, and ``FILE`` for one that is written.
    """

    item: str
    title: str
    small: str | None = None
    full: str | None = None
    shown: str | None = None
    conceptual: str | None = None
    missing: str | None = None

    @model_validator(mode="after")
    def _of_one_kind(self) -> "PaperItem":
        made = [self.small, self.full, self.shown]
        if any(made) and not all(made):
            raise Mistakes(f"{self.item} needs small, full and shown together, or none of them.")
        if self.conceptual and (any(made) or self.missing):
            raise Mistakes(f"{self.item} is conceptual, so it has no command and nothing is missing; keep one of them.")
        if not (any(made) or self.conceptual or self.missing):
            raise Mistakes(f"{self.item} needs its commands, or conceptual or missing with a reason.")
        return self


class Paper(Section):
    """A paper, and all its tables and figures in their order."""

    paper: str
    items: tuple[PaperItem, ...] = Field(min_length=1)


def papers(name: str | None = None) -> Mapping[str, Paper]:
    """Every paper by its short name, or the one that is called ``name``.

    Raises:
        Mistakes: there is no such paper.
    """
    files = shipped("papers")
    if name is not None and name not in files:
        raise Mistakes(f"{name} is no paper{suggestion(name, files)}; there are {', '.join(files)}.")
    return {key: validate(Paper, read_yaml(file)).result() for key, file in files.items() if name in (None, key)}
