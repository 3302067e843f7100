"""A campaign with metrics beyond 1: tables and report print values as measured, not times 100."""

import re
from pathlib import Path
from typing import Any

from support.finished_search import campaign_here

from search.campaigns.report import study
from search.campaigns.tables import campaign_tables, in_unit
from search.text_table import TextTable

WRITTEN: dict[str, Any] = {
    "name": "units",
    "study": "two sizes of a set of records",
    "base": {
        "trainable": "support.own_trainings:Scales",
        "dataset": {"name": "support.own_trainings:ManyRecords"},
        "training": {"epochs": 2},
        "search": {"trials": 2, "objective": "dists_intra"},
        "split": {"ratio": 0.6},
        "selection": {"finalists": 1, "seeds": 1},
        "final": {"seeds": 2},
    },
    "vary": {"epochs": {"1": {"training.epochs": 1}, "2": {"training.epochs": 2}}},
    "table": {"rows": ["loss"], "metrics": ["validation", "dists_intra", "dists_inter"]},
}


def printed(table: TextTable) -> set[str]:
    return {number for row in table.rows for entry in row for number in re.findall(r"-?\d+\.\d{2,}", entry)}


def test_the_numbers_are_as_measured_in_every_table_and_the_report(tmp_path: Path) -> None:
    with campaign_here(tmp_path / "runs", WRITTEN) as (campaign, result):
        pass
    tables = campaign_tables(campaign.config, result)
    means = [cell.mean for cell in result.cells if cell.mean is not None]
    assert len(means) == len(result.cells) == 2 * 2 * 3
    first = printed(tables[0])
    assert all(f"{mean:.3f}" in first for mean in means), tables[0]
    assert not any("per cent" in note for note in tables[0].notes)
    largest = max(abs(mean) for mean in means)
    for table in tables:
        assert all(abs(float(number)) < 10 * largest + 10 for number in printed(table)), table.title
    section = study(campaign.config, result)
    best = max(cell.mean for cell in result.cells if cell.measured == "dists_intra" and cell.mean is not None)
    assert any(in_unit("dists_intra", best) in cell for row in section.results[0].rows for cell in row)
    assert not any("in percent" in str(figure.picture) for figure in section.figures)
