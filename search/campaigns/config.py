"""The campaign file: a search file, what varies, and the table that comes out."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

from pydantic import Field, field_validator, model_validator

from search.config.names import folder_name, known_metric, plain_name, unique
from search.config.search_config import SearchConfig
from search.config.sections.section import Names, Section
from search.config.validation.key_paths import key_paths
from search.config.validation.validation_errors import Validation, validate
from search.selection.role import Role
from spaces.value import Value
from trainables.mistakes import Mistakes

LOSS = "loss"
VALIDATION = "validation"
"""Beside the test metrics: the objective on the validation classes, confirmed."""

Labels = dict[str, dict[str, Any]]
"""For each label of an axis its settings, ``key.path: value`` as ``--set`` takes them."""


MOST_SEARCHES = 500
"""Each of them is checked before any begins."""

STAND_INS = {
    "name": "unnamed",
    "study": "unsaid",
    "base": {},
    "vary": {"axis": {"label": {}}},
    "table": {"rows": [LOSS]},
}
"""What is put for a required key that is missing or wrong while the rest of a file is looked at."""


def _check_label(axis: str, label: str, settings: Mapping[str, Any]) -> None:
    try:
        plain_name(label)
    except ValueError as error:
        raise ValueError(f"the label {label!r} of {axis} stands in the names of searches, and {error}") from error
    for path in settings:
        if not all(path.split(".")):
            raise ValueError(f"the label {label} of {axis} sets {path!r}, which is no key such as search.trials")
        if path.split(".")[0] == "name":
            raise ValueError(f"the label {label} of {axis} sets name: searches are called after the labels")


class TableSection(Section):
    """The shape of the table: ``rows`` are axes or ``loss``; what is left makes the columns, the metrics last."""

    rows: Names
    metrics: Names = ("recall_at_1",)
    roles: tuple[Role, ...] = Field(default=(Role.DEFAULT, Role.TUNED), min_length=1)

    @field_validator("rows")
    @classmethod
    def _once(cls, rows: tuple[str, ...]) -> tuple[str, ...]:
        unique(rows)
        return rows

    @field_validator("metrics")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name != VALIDATION:
                known_metric(name)
        return names


class Printed(Section):
    """Something that a paper prints of cells of the table; ``left_out`` says why some of it does not stand there.

    A cell is named by a loss and a label of each axis, with spaces between.
    """

    source: str
    cells: Mapping[str, Any]
    left_out: str | None = None

    @property
    def told(self) -> Iterator[str]:
        """What stands beside ours, and what does not."""
        if self.cells:
            yield f"in brackets: {self.source}"
        if self.left_out:
            yield f"not beside ours: {self.source}; {self.left_out}"


class PublishedSection(Printed):
    """Numbers as a paper prints them, in the unit of our tables (per cent; distances as they are).

    ``cells`` have one number a metric. ``role`` says whose numbers ours stand beside.
    """

    role: Role
    metrics: Names
    cells: dict[str, tuple[float, ...]]

    @model_validator(mode="after")
    def _whole(self) -> "PublishedSection":
        if wrong := [key for key, values in self.cells.items() if len(values) != len(self.metrics)]:
            raise ValueError(f"each cell needs {len(self.metrics)} numbers ({', '.join(self.metrics)}); see {wrong[0]}")
        return self


class PublishedChoicesSection(Printed):
    """Which hyperparameters a paper found best, by our names; those of the training begin with ``training.``."""

    cells: dict[str, dict[str, Value]]


class QuotedSection(Section):
    """Rows of a paper's table beside which no cell of ours stands, as printed; ``null`` where it prints nothing."""

    source: str
    metrics: Names
    rows: dict[str, tuple[float | None, ...]]

    @model_validator(mode="after")
    def _whole(self) -> "QuotedSection":
        if wrong := [key for key, values in self.rows.items() if len(values) != len(self.metrics)]:
            raise ValueError(f"each row needs {len(self.metrics)} numbers ({', '.join(self.metrics)}); see {wrong[0]}")
        return self


class CampaignConfig(Section):
    """A whole campaign file.

    ``base`` is a search file without a name, on top of the recipe of that name where one is given.
    """

    name: str
    study: str
    recipe: str | None = None
    base: dict[str, Any]
    vary: dict[str, Labels] = Field(min_length=1, max_length=2)
    table: TableSection
    published: tuple[PublishedSection, ...] = ()
    published_choices: tuple[PublishedChoicesSection, ...] = ()
    quoted: tuple[QuotedSection, ...] = ()

    def search_name(self, labels: Sequence[str]) -> str:
        """What the search at ``labels``, one an axis, is called."""
        return "-".join((self.name, *labels))

    @property
    def search_names(self) -> list[str]:
        """What all the searches are called."""
        return [self.search_name(labels) for labels in product(*self.vary.values())]

    @field_validator("name")
    @classmethod
    def _plain(cls, name: str) -> str:
        return folder_name(name)

    @field_validator("base")
    @classmethod
    def _nameless(cls, base: dict[str, Any]) -> dict[str, Any]:
        if "name" in base:
            raise ValueError("base has no name of its own: each search is called after the campaign and its labels")
        return base

    @field_validator("vary")
    @classmethod
    def _labelled(cls, vary: dict[str, Labels]) -> dict[str, Labels]:
        for axis, labels in vary.items():
            if axis == LOSS:
                raise ValueError("an axis cannot be called loss: a search's losses vary by themselves")
            if not labels:
                raise ValueError(f"the axis {axis} has no label")
            for label, settings in labels.items():
                _check_label(axis, label, settings)
        if (searches := prod(map(len, vary.values()))) > MOST_SEARCHES:
            raise ValueError(f"it makes {searches} searches, and a campaign has {MOST_SEARCHES} at most")
        return vary

    @model_validator(mode="after")
    def _known_rows(self) -> "CampaignConfig":
        known = (LOSS, *self.vary)
        if unknown := [row for row in self.table.rows if row not in known]:
            raise Mistakes(f"table.rows may name {', '.join(known)}; {', '.join(unknown)} is none of them.")
        return self


def validate_campaign(content: Mapping[str, Any]) -> Validation[CampaignConfig]:
    """What a campaign file with the keys and values ``content`` says, and what is wrong in it but for its searches.

    It always builds something: :data:`STAND_INS` are put for required keys.
    """
    of_searches = [f"base.{key}" for key in key_paths(SearchConfig)]
    return validate(CampaignConfig, content, keys=[*key_paths(CampaignConfig), *of_searches], stand_ins=STAND_INS)


def read_config(content: Mapping[str, Any]) -> CampaignConfig:
    """The campaign file with the keys and values ``content``.

    Raises:
        Mistakes: all that is wrong with it, its searches left aside.
    """
    return validate_campaign(content).result()
