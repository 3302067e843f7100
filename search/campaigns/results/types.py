"""What a campaign came to, as ``campaign.json`` holds it."""

from collections.abc import Mapping

from search.report.results.curves import ComparedCurve
from search.report.results.pair import Pair
from search.report.results.result import Result
from search.report.statistics.tournament import Standing
from search.selection.role import Role
from spaces.value import Value


class Cell(Result):
    """One number of the table: ``coordinates`` names its loss, its label on each axis, its configuration and metric.

    ``values`` are those of the trained models, in our unit (0 to 1), of so many ``seeds``; empty where nothing
    finished. ``mean`` is their mean, ``std`` their sample deviation. ``published`` is the paper's number in the same
    unit.
    """

    coordinates: Mapping[str, str]
    values: tuple[float, ...]
    seeds: int
    mean: float | None
    std: float | None
    published: float | None


class Optimism(Result):
    """The mean ``objective`` of ``count`` configurations after each stage, of 0 to 1.

    ``search``, ``confirmed`` and ``final`` (the trainings for the test) are on the validation classes, ``test`` on the
    test classes. A stage that one of the configurations lacks is None.
    """

    objective: str
    count: int
    search: float | None
    confirmed: float | None
    final: float | None
    test: float | None


class CampaignPair(Pair):
    """Two rows of the table, which are called ``names`` there."""

    names: tuple[str, str]


class CampaignCurve(ComparedCurve):
    """The curve of one ``way`` to search, named by its labels."""

    way: str


class CampaignEpochs(Result):
    """How many epochs all searches together trained: searching, confirming, and for the test."""

    search: int
    confirm: int
    final: int


class CampaignResult(Result):
    """What the campaign ``name`` came to; ``study`` says in words what it is about.

    ``searches`` maps each search to its label on each axis, ``chosen`` each search and loss to the hyperparameters
    that were chosen. ``tournaments`` ranks the losses and ``optimism`` follows the objective, by role. ``left_out``
    says which rows could not be paired. ``openings`` maps the digest of each test set to how often it was opened.
    """

    name: str
    study: str
    searches: Mapping[str, Mapping[str, str]]
    cells: tuple[Cell, ...]
    chosen: Mapping[str, Mapping[str, Mapping[str, Value]]]
    tournaments: Mapping[Role, tuple[Standing, ...]]
    optimism: Mapping[Role, Optimism]
    pairs: tuple[CampaignPair, ...]
    left_out: tuple[str, ...]
    anytime: tuple[CampaignCurve, ...]
    epochs: CampaignEpochs
    openings: Mapping[str, str]
