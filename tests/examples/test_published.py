"""The papers' numbers in `examples/papers/published`, and the command that shows a campaign beside them."""

import math
from collections import Counter
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from scipy.stats import chi2
from support.spaces import spaces_of
from support.summaries import blank_summaries
from support.trees import Trees, make_tree, shipped_campaign

from examples.papers.published import FILES, main, printed
from examples.papers.tournament import Tournament, scores_of, tournament
from search.config.recipes import read_file
from search.config.yaml_file import read_yaml
from search.records.campaign import VALIDATION, Campaign, parse_campaign
from search.records.runs import CampaignFolder
from search.results.campaign import CampaignResult, Cell, data_axes, measured
from trainables.metrics import split_subset


def place(cell: Cell) -> tuple[str, ...]:
    *labels, role, metric = cell.coordinates.values()
    return " ".join(labels), role, metric


@pytest.mark.parametrize("name", FILES)
def test_each_number_belongs_to_one_cell_of_the_campaign(name: str, trees: Trees) -> None:
    ours = Counter(map(place, measured(campaign := shipped_campaign(name, trees), blank_summaries(campaign))))
    theirs = Counter((row["cell"], row["configuration"], row["metric"]) for row in printed(name))
    assert theirs <= ours
    assert theirs.total() > 0


@pytest.mark.parametrize("name", FILES)
def test_numbers_are_shares_that_grow_with_k_on_each_test_list(name: str) -> None:
    content: dict[str, list[dict[str, Any]]] = read_yaml(FILES[name])
    for section in (*content["published"], *content.get("quoted", [])):
        metrics, rows = section["metrics"], (section.get("cells") or section["rows"]).values()
        assert all(len(row) == len(metrics) for row in rows)
        assert all(value is None or 0 < value < 100 for row in rows for value in row)
        split = [split_subset(metric) for metric in metrics]
        for row, subset in product(rows, {subset for _, subset in split}):
            pairs = zip(split, row, strict=True)
            recalls = [
                value for (metric, of), value in pairs if of == subset and metric.startswith("recall_at_") and value
            ]
            assert "validation" in metrics or recalls == sorted(recalls)


@pytest.mark.parametrize("name", ["hyperparameter-search-cub200", "fixed-validation-cub200"])
def test_the_optima_are_the_printed_ones_and_are_searched(name: str, trees: Trees) -> None:
    (choices,) = read_yaml(FILES[name])["published_choices"]
    soft_triple = {"margin": 0.4, "scale": 78, "training.proxy_lr": 5e-5, "tau": 0.4}
    assert choices["cells"] == {
        "multi_similarity coordinate": {"margin": 0.8, "pos_scale": 18, "neg_scale": 76, "epsilon": 0.4},
        "soft_triple coordinate": {**soft_triple, "gamma": pytest.approx(1 / 58, abs=1e-5)},
        "proxy_anchor coordinate": {"margin": 0.1, "scale": 32},
    }
    spaces = spaces_of(shipped_campaign(name, trees).searches[0])
    for key, params in choices["cells"].items():
        searched = spaces[key.split()[0]].searched
        assert params.keys() == searched.keys()
        assert all(searched[name].contains(value) for name, value in params.items())


def tournament_of(campaign: Campaign) -> Tournament:
    """Return the tournament of a campaign with the paper's numbers instead of ours."""
    numbers = {(row["cell"], row["configuration"], row["metric"]): row["published"] for row in printed(campaign.name)}
    blank = measured(campaign, blank_summaries(campaign))
    cells = pandas.DataFrame([{**cell.coordinates, "mean": numbers.get(place(cell))} for cell in blank])
    metric = next(name for name in campaign.config.table.metrics if name != VALIDATION)
    of_role = cells[(cells["configuration"] == "default") & (cells["metric"] == metric)].astype({"mean": float})
    return tournament(scores_of(of_role, [*campaign.config.vary], data_axes(campaign)))


def test_the_printed_tournament_is_the_thesis_s(trees: Trees) -> None:
    """Table 11 follows from Tables 6 to 8; the loss that only some searches have takes no part.

    Friedman's statistic by its definition, and Nemenyi's quantile of ten: 3.164 (Demšar 2006, Table 5).
    """
    thesis = tournament_of(shipped_campaign("loss-benchmark-cub200", trees))
    found = thesis.summary()
    totals = {
        "proxy_anchor": 12, "soft_triple": 38, "multi_similarity": 51, "contrastive": 52, "lifted_structure": 54,
        "margin": 70, "arcface": 79, "proxy_nca": 81, "triplet": 103, "npair": 120,
    }  # fmt: skip
    assert found["sum"].to_dict() == totals
    assert found["mean"].to_dict() == pytest.approx({loss: total / 12 for loss, total in totals.items()})
    deviations = [0, 1.19, 2.05, 1.72, 1.89, 1.27, 2.31, 1.66, 0.51, 0]
    assert found["deviation"][list(totals)].tolist() == pytest.approx(deviations, abs=0.01)
    assert found["wins"]["proxy_anchor"] == 12
    statistic = 12 * 12 / (10 * 11) * ((thesis.ranks.mean(axis=1) ** 2).sum() - 10 * 11**2 / 4)
    assert thesis.p == pytest.approx(chi2.sf(statistic, 9))
    assert thesis.critical_difference == pytest.approx(3.164 * math.sqrt(10 * 11 / (6 * 12)), rel=1e-3)
    assert thesis.sentence().startswith("Friedman's p 0.000; losses differ if their mean ranks are 3.91 or more apart")


@pytest.mark.parametrize(
    ("name", "first"),
    [
        # Tables 4 to 6, Recall@1: ranks of three data sets
        ("data-sets-mpa", {"mpa_ap": (2, 1, 3), "mpa": (1, 2, 5), "mpa_dw": (3, 3, 2), "soft_triple": (5, 5, 1)}),
        # Table 1, Precision@1: the winners after the paper's own loss (section 4.6)
        ("data-sets-sampling", {"topk_precision top-k": (1, 1, 1), "triplet distance-weighted": (2, 6, 4)}),
        ("data-sets-sampling", {"angular none": (4, 2, 3), "triplet hard": (5, 5, 2)}),
        # Tables 7, 9, 10 and 17 to 19, Recall@1
        ("data-sets-thesis", {"proxy_anchor": (1, 1, 1), "soft_triple": (2, 2, 2), "npair": (11, 11, 11)}),
    ],
)
def test_the_printed_ranks_over_data_sets(name: str, first: dict[str, tuple[int, ...]], trees: Trees) -> None:
    """Ranks read off the printed tables."""
    found = tournament_of(shipped_campaign(name, trees))
    assert found.ranks.shape[1] == 3
    assert {loss: tuple(ranks) for loss, ranks in found.ranks.T.items()}.items() >= first.items()


def test_a_campaign_is_shown_beside_its_paper(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the settings that are not the paper's; a folder of its images is none."""
    name = "split-ratio-cub200"
    root = make_tree("cub200", tmp_path / "images", classes_per_half=8, images_per_class=3)
    settings = [f"base.dataset.root={root}", "base.training.epochs=2"]
    campaign = parse_campaign(read_file(Path(name), settings))
    folder = CampaignFolder(tmp_path / "runs", name)
    folder.begin(campaign.config)
    cells = tuple(cell.model_copy(update={"mean": 0.5}) for cell in measured(campaign, blank_summaries(campaign)))
    nothing: dict[str, Any] = {
        **{key: {} for key in ("searches", "chosen", "epochs", "openings")},
        **dict.fromkeys(("pairs", "left_out", "folds", "warnings"), ()),
    }
    result = CampaignResult(name=name, study="", cells=cells, **nothing)
    folder.end(result.model_dump(mode="json"))
    main([name, "--runs", str(folder.runs)])
    out = capsys.readouterr().out
    assert len(out.splitlines()) == 1 + len(printed(name)) + 1
    assert "not comparable: base.training is {'epochs': 2}, not None" in out


# The tournament of losses, also of a campaign over data sets.


def test_equal_losses_do_not_look_ranked() -> None:
    generator = np.random.default_rng(0)
    rejected = apart = 0
    for _ in range(40):
        found = tournament(pandas.DataFrame(generator.normal(size=(10, 8))))
        assert found.p is not None
        assert found.critical_difference is not None
        means = found.ranks.mean(axis=1)
        rejected += found.p <= 0.05
        apart += means.max() - means.min() >= found.critical_difference
    assert max(rejected, apart) <= 0.15 * 40  # 5 in 100 and three standard errors


@pytest.mark.parametrize(
    "scores", [np.eye(4, 2), np.eye(2, 5), np.full((3, 4), 0.5)], ids=["few settings", "few losses", "ties"]
)
def test_too_few_or_equal_ranks_say_nothing(scores: np.ndarray) -> None:
    found = tournament(pandas.DataFrame(scores))
    assert found.p is None
    assert found.sentence() == "Too few losses or settings to test the ranks, or all losses tie."


DATA, SIZES, NAMES = ("first", "second", "third"), ("8", "16"), ("pnp", "proxy_anchor", "contrastive")


def made_cells(numbers: list[float | None]) -> pandas.DataFrame:
    keys = [(loss, data, size) for data in DATA for size in SIZES for loss in NAMES]
    cells = pandas.DataFrame(keys, columns=["loss", "data", "size"])
    return cells.assign(mean=np.array(numbers, dtype=float))


def test_a_score_is_the_mean_over_the_other_axes() -> None:
    """By exact fractions; a cell without a number leaves no tournament."""
    numbers = [0.5, 0.4, 0.3, 0.1, 0.3, 0.2, 0.6, 0.6, 0.1, 0.2, 0.4, 0.2, 0.3, 0.5, 0.1, 0.7, 0.5, 0.2]  # a tie
    found = tournament(scores_of(made_cells(numbers), ["data", "size"], ["data"]))
    for place, data in enumerate(DATA):
        first, second = numbers[6 * place : 6 * place + 3], numbers[6 * place + 3 : 6 * place + 6]
        sums = [Fraction(str(a)) + Fraction(str(b)) for a, b in zip(first, second, strict=True)]
        expected = [sum(other > own for other in sums) + (sums.count(own) + 1) / 2 for own in sums]
        assert found.ranks[data][[*NAMES]].tolist() == expected
    assert scores_of(made_cells([*numbers[:-1], None]), ["data", "size"], ["data"]).empty


def test_rows_are_ranked_where_searches_share_no_losses() -> None:
    cells = made_cells([0.5, 0.4, 0.3, 0.1, 0.3, 0.2] * 3)
    other = cells[(cells["loss"] != "pnp") == (cells["size"] == "8")]
    scores = scores_of(other, ["data", "size"], ["data"])
    assert set(scores.index) == {"proxy_anchor 8", "contrastive 8", "pnp 16"}
    assert scores_of(other.drop(other.index[0]), ["data", "size"], ["data"]).shape == (2, 3)
