"""What a campaign came to, as ``campaign.json`` holds it."""

from collections.abc import Mapping

from search.report.results.curves import ComparedCurve
from search.report.results.pair import Pair
from search.report.results.result import Result
from search.report.statistics.tournament import Tournament
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
    test classes, and ``test_small`` among as many of them as validate. A stage that one of the configurations lacks is
    None.
    """

    objective: str
    count: int
    search: float | None
    confirmed: float | None
    final: float | None
    test_small: float | None
    test: float | None


class CampaignPair(Pair):
    """Two rows of the table, which are called ``names`` there."""

    names: tuple[str, str]


class Trend(Result):
    """Whether ``metric`` rises along an ``axis`` of numbers, of the rows that ``coordinates`` names.

    ``change`` is that of a straight line through the means of the labels in their order, from the first to the last,
    with its 95 % interval; ``p_holm`` is corrected for the trends of one test set. ``differ`` says whether it is there.
    """

    axis: str
    labels: tuple[str, ...]
    coordinates: Mapping[str, str]
    metric: str
    change: float
    ci95: tuple[float, float]
    p: float
    p_holm: float
    differ: bool


class FoldModel(Result):
    """The model of one ``fold``, from 1, of a search's cross-validation; ``training`` numbers the seeds from 1.

    ``validation`` is the ``objective`` of its best epoch on the classes that the fold leaves out, and ``test`` the
    metrics of the table on the test classes, both in our unit.
    """

    search: str
    loss: str
    role: Role
    training: int
    fold: int
    objective: str
    validation: float | None
    test: Mapping[str, float]


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
    that were chosen. ``tournaments`` ranks the losses and ``optimism`` follows the objective, by role. ``trends``
    are along the axes of numbers, ``pairs`` between the rows of a column. ``left_out`` says which rows could not be
    paired. ``folds`` has each model of a cross-validation. ``openings`` maps the digest of each test set to how often
    it was opened. ``warnings`` says what was trained on images of an opened test set or chosen after opening, and which
    axes are nothing to choose by.
    """

    name: str
    study: str
    searches: Mapping[str, Mapping[str, str]]
    cells: tuple[Cell, ...]
    chosen: Mapping[str, Mapping[str, Mapping[str, Value]]]
    tournaments: Mapping[Role, Tournament]
    published_tournaments: Mapping[Role, Tournament]
    optimism: Mapping[Role, Optimism]
    pairs: tuple[CampaignPair, ...]
    trends: tuple[Trend, ...]
    left_out: tuple[str, ...]
    folds: tuple[FoldModel, ...]
    anytime: tuple[CampaignCurve, ...]
    epochs: CampaignEpochs
    openings: Mapping[str, str]
    warnings: tuple[str, ...]
