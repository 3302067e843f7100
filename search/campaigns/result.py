"""The result of a campaign: computed from its searches, written into MLflow, and verified against the records."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from search.campaigns.tables import (
    METRIC,
    ROLE,
    CampaignResult,
    Cell,
    campaign_csv,
    campaign_tables,
    columns_of,
    data_set_tables,
    joined,
    row_axes,
)
from search.config.campaign import LOSS, VALIDATION, Campaign, CampaignConfig, Member, merged, parse_campaign
from search.config.recipes import recipes
from search.config.search_config import SearchConfig, parse_config, settled
from search.config.yaml_file import read_yaml
from search.difference import Family, RowKey
from search.driver.synchronise import synchronise_campaign
from search.driver.verify import Check, check, code_named, differing, guarded, verify
from search.plan.make_plan import plan_from_rules
from search.plan.plan import Plan
from search.plan.records import Records, trusted_config
from search.plan.runs import CampaignFolder, RunFolder
from search.report.comparison import chosen_after_opening, openings_told, summary_of, training_told, unlike_told
from search.report.pairs import pairs_of
from search.report.results import Pair, Summary
from search.report.rows import Row
from search.report.summary import summarise
from search.stages import BASELINES, UNTRAINED, Role, Stage
from search.text_table import as_markdown, rows_as_markdown
from search.trials import epochs_trained
from search.trust import CAMPAIGN_RECIPE, check_addresses, check_trusted, own_code
from trainables.files import read_json, reading

# The rows of a campaign by their coordinates, and its cells: one number per row and metric.

Coordinates = Mapping[RowKey, Mapping[str, str]]
"""The loss and the labels of each row, and its configuration."""


def labels_of(campaign: Campaign, member: Member) -> dict[str, str]:
    """Return the label of a search on each axis."""
    return dict(zip(campaign.config.vary, member.labels, strict=True))


def rows_of(campaign: Campaign) -> dict[RowKey, dict[str, str]]:
    """Return the coordinates of all rows: in each search the networks without training, then the configurations."""
    rows = {}
    for member in campaign.members:
        names = [(name, Role.BASELINE) for name in BASELINES if member.config.model.is_pretrained]
        names += [(loss, Role(role)) for loss in member.config.loss_names for role in campaign.config.table.roles]
        for loss, role in names:
            key = RowKey(search=member.config.name, loss=loss, role=role)
            rows[key] = {LOSS: loss, **labels_of(campaign, member), ROLE: role.value}
    return rows


def tested_metrics(config: CampaignConfig) -> list[str]:
    """Return the metrics of the table that the test measures."""
    return [name for name in config.table.metrics if name != VALIDATION]


def measured(campaign: Campaign, summaries: Sequence[Summary]) -> Iterator[Cell]:
    """Yield all cells, from the summaries of the campaign's searches."""
    rows = {row.key: row for summary in summaries for row in summary.rows}
    objective = campaign.members[0].config.objective
    for key, place in rows_of(campaign).items():
        for metric in campaign.config.table.metrics if key in rows else ():
            row, name = rows[key], objective if metric == VALIDATION else metric
            found = row.confirmed if metric == VALIDATION else (row.test or {}).get(metric)
            numbers = found.model_dump(include={"values", "seeds", "mean", "std"}) if found else {}
            yield Cell(coordinates={**place, METRIC: metric}, measured=name, **numbers)


def data_axes(campaign: Campaign) -> tuple[str, ...]:
    """Return the axes whose labels are data sets, or other versions of one."""
    return tuple(axis for position, axis in enumerate(campaign.config.vary) if _differs(campaign, position))


def _differs(campaign: Campaign, position: int) -> bool:
    found: dict[tuple[str, ...], set[str]] = {}
    for member in campaign.members:
        others = (*member.labels[:position], *member.labels[position + 1 :])
        found.setdefault(others, set()).add(member.config.dataset.model_dump_json(exclude={"cache"}))
    return any(len(values) > 1 for values in found.values())


# Sweeps on the test classes: axes of hyperparameters among which no validation chooses.

HYPERPARAMETERS = ("space", "training", "training_by_loss", "model")
"""The sections whose settings a search can choose by validation."""


def sweeps(config: CampaignConfig, data: Sequence[str]) -> Iterator[str]:
    """Yield a warning if the table shows test metrics of several values of hyperparameters."""
    axes = [
        axis
        for axis, labels in config.vary.items()
        if axis not in data
        and len(labels) > 1
        and any(path.split(".")[0] in HYPERPARAMETERS for of in labels.values() for path in of)
    ]
    if axes and tested_metrics(config):
        yield (
            f"not for choosing: {' and '.join(axes)} var{'y' if len(axes) > 1 else 'ies'} on the test classes, so "
            "taking the best means choosing by the test; a search chooses by validation"
        )


# The result.


def campaign_result(
    campaign: Campaign, searches: Sequence[Records], of: Callable[[Records], Summary] = summary_of
) -> CampaignResult:
    """Return the result of a campaign, whose searches are in the order of its members, from their summaries."""
    config, data = campaign.config, data_axes(campaign)
    summaries = [of(search) for search in searches]
    labels = {member.config.name: labels_of(campaign, member) for member in campaign.members}
    cells = tuple(measured(campaign, summaries))
    by_image_set: dict[str, list[Records]] = {}
    for search in searches:
        by_image_set.setdefault(search.image_set, []).append(search)
    rows = [row for summary in summaries for row in summary.rows]
    pairs, left_out = _comparisons(campaign, by_image_set.values(), rows)
    return CampaignResult(
        name=campaign.name,
        study=config.study,
        searches=labels,
        data_axes=data,
        cells=cells,
        chosen={
            summary.name: {loss: entry.chosen.params or {} for loss, entry in summary.losses.items() if entry.chosen}
            for summary in summaries
        },
        pairs=tuple(pairs),
        left_out=tuple(left_out),
        folds=tuple(itertools.chain.from_iterable(map(_folds, itertools.repeat(campaign), searches, summaries))),
        epochs={
            stage.trainings: sum(
                epochs_trained(search.trials(loss, stage)) for search in searches for loss in search.config.loss_names
            )
            for stage in Stage
        },
        openings={
            digest: openings_told(sharing)
            + (f" ({', '.join(sorted({joined(labels[search.name], data) for search in sharing}))})" if data else "")
            for digest, sharing in by_image_set.items()
        },
        warnings=(
            *training_told(searches, rows),
            *_unlike_told(campaign, searches, rows),
            *chosen_after_opening(searches, campaign_family(campaign), [row.key for row in rows if row.test]),
            *sweeps(config, data),
        ),
    )


def _folds(campaign: Campaign, search: Records, summary: Summary) -> Iterator[Cell]:
    """Yield the numbers of each fold's model in the first opening, as in the thesis's Table 13; none without folds."""
    scores = [score for opening in search.openings[:1] for score in opening.scores]
    places = rows_of(campaign)
    for row in summary.rows if scores else ():
        if row.role is Role.BASELINE or row.key not in places:
            continue
        models = [model for model in scores if (model.loss, model.source_trial) == (row.loss, row.number)]
        trained = {
            (made["source_trial"], made["seed"], made.get("fold")): trial.value
            for trial in search.trials(row.loss, Stage.TEST)
            for made in [trial.user_attrs]
        }
        seeds = list(dict.fromkeys(model.seed for model in models))
        for model in models:
            place = {**places[row.key], "training": str(seeds.index(model.seed) + 1), "fold": str(model.fold)}
            validation = {VALIDATION: trained[row.number, model.seed, model.fold]}
            for metric, value in {**validation, **model.metrics}.items() if model.fold is not None else ():
                if value is not None and metric in (VALIDATION, *tested_metrics(campaign.config)):
                    name = search.config.objective if metric == VALIDATION else metric
                    place[METRIC] = metric
                    yield Cell(coordinates={**place}, measured=name, values=(value,), seeds=1, mean=value)


def _unlike_told(campaign: Campaign, searches: Sequence[Records], rows: Sequence[Row]) -> Iterator[str]:
    """Yield a sentence for each column of the table whose ``rows`` differ in the network or its images."""
    columns, by_key = _paired_columns(campaign), {row.key: row for row in rows}
    by_name = {search.name: search for search in searches}
    by_column: dict[tuple[str, str], list[Row]] = {}
    for key, place in rows_of(campaign).items():
        if key.role is not Role.BASELINE:
            column = by_name[key.search].image_set, joined(place, columns)
            by_column.setdefault(column, []).append(by_key[key])
    for of_column in by_column.values():
        yield from unlike_told([by_name[name] for name in {row.search for row in of_column}], of_column)


# Pairs of rows on the test classes.


def campaign_family(campaign: Campaign) -> Family:
    """Return the rows, pairs and metrics of the table, which are frozen with the choices."""
    return Family(
        metrics=frozenset(tested_metrics(campaign.config)),
        rows=frozenset(rows_of(campaign)),
        pairs=frozenset(map(frozenset, _wanted_pairs(campaign))),
        within=campaign.members[0].config.final.within,
    )


def _comparisons(
    campaign: Campaign, sharing: Iterable[Sequence[Records]], rows: Sequence[Row]
) -> tuple[list[Pair], list[str]]:
    """Return the pairs of the tested rows of each test set, and sentences on what is left out."""
    wanted, coordinates = _wanted_pairs(campaign), _paired_rows(campaign)
    pairs: list[Pair] = []
    left_out: list[str] = []
    for searches in sharing:
        names = {search.name for search in searches}
        of_set = [row for row in rows if row.search in names]
        keys = (*coordinates, *_untrained(campaign).values())
        within = campaign.members[0].config.final.within
        found, missing = pairs_of(searches, of_set, tested_metrics(campaign.config), keys, wanted, within)
        pairs += found
        left_out += missing
    return pairs, left_out


def _untrained(campaign: Campaign) -> dict[str, RowKey]:
    return {key.search: key for key in rows_of(campaign) if key.role is Role.BASELINE and key.loss == UNTRAINED}


def _paired_rows(campaign: Campaign) -> Coordinates:
    """Return the loss and the labels of the rows that are paired: the tuned ones if the table has both roles."""
    role = Role.TUNED if Role.TUNED in campaign.config.table.roles else Role.DEFAULT
    return {
        key: {name: label for name, label in place.items() if name != ROLE}
        for key, place in rows_of(campaign).items()
        if key.role is role
    }


def _paired_columns(campaign: Campaign) -> list[str]:
    rows = row_axes(campaign.config, data_axes(campaign))
    return columns_of(campaign.config, _paired_rows(campaign).values(), rows)


def _wanted_pairs(campaign: Campaign) -> list[tuple[RowKey, RowKey]]:
    """Return all pairs of rows of a column, and of each row with the untrained network of its search."""
    columns, rows, untrained = _paired_columns(campaign), _paired_rows(campaign), _untrained(campaign)
    by_column: dict[str, list[RowKey]] = {}
    for key, place in rows.items():
        by_column.setdefault(joined(place, columns), []).append(key)
    pairs = [pair for keys in by_column.values() for pair in itertools.combinations(keys, 2)]
    return [*pairs, *((key, untrained[key.search]) for key in rows if key.search in untrained)]


# MLflow.


def record_campaign(plans: Iterable[Plan], campaign: Campaign, result: CampaignResult, folder: CampaignFolder) -> None:
    """Write the campaign's run into MLflow: its table and numbers of epochs."""
    of_data = data_set_tables(campaign.config, result)
    titles = [f"{table.title}\n\n" if len(of_data) > 1 else "" for table in of_data]
    shown = [f"{title}{rows_as_markdown(table)}" for title, table in zip(titles, of_data, strict=True)]
    sentence = f"{campaign.config.study} The runs below this one are its searches."
    synchronise_campaign(
        plans,
        campaign.name,
        description="\n\n".join((*shown, sentence)),
        metrics={f"epochs/{stage}": count for stage, count in result.epochs.items()},
        texts={"table.md": as_markdown(campaign_tables(campaign.config, result)), "table.csv": campaign_csv(result)},
        files=[path for path in (folder.config, folder.result, folder.report) if path.exists()],
    )


# The stored campaign, and its verification.


def stored_campaign(folder: CampaignFolder) -> Campaign:
    """Return the stored campaign in ``folder``; reading it imports the user-defined code that its searches name.

    Raises:
        InvalidInput: its file cannot be read, or names code or a recipe file that is not trusted.
    """
    content = folder.content()
    if content.get(CAMPAIGN_RECIPE) not in recipes():
        check_addresses(folder.config.parent, content, [CAMPAIGN_RECIPE])

    def allowed(search: dict[str, Any]) -> SearchConfig:
        run = RunFolder(folder.runs, str(search.get("name")))
        check_trusted(run.path, own_code(search))
        if run.config.exists():  # a batch size that was not given was fitted to the classes
            with reading(run.config):
                search = merged({"training": {"batch_size": read_yaml(run.config)["training"]["batch_size"]}}, search)
        return parse_config(search)

    return parse_campaign(content, allowed)


GROWS = "openings"
"""The part of the result about the ledger, which later openings extend."""


def verify_campaign(folder: CampaignFolder) -> Iterator[Check]:
    """Yield the checks of the campaign in ``folder``, up to the first one that fails."""
    for name in folder.searches():
        if (run := RunFolder(folder.runs, name)).config.exists():
            check_trusted(run.path, code_named(run))
    yield from guarded(lambda: _checks(folder))


def _checks(folder: CampaignFolder) -> Iterator[Check]:
    campaign = stored_campaign(folder)
    for member in campaign.members:
        run = RunFolder(folder.runs, member.config.name)
        if not run.config.exists():
            yield Check(run.name, is_there=False)
            continue
        stored = trusted_config(run, addresses=())
        yield check(
            f"{run.name}: its file, from campaign.yaml",
            differing(f"{run.name} search.yaml ", settled(stored), settled(member.config)),
        )
        yield from verify(run)
    yield _result_check(folder, campaign)


def _result_check(folder: CampaignFolder, campaign: Campaign) -> Check:
    runs = [RunFolder(folder.runs, member.config.name) for member in campaign.members]
    begun = [run for run in runs if run.config.exists() and run.journal.exists()]
    searches = [Records(run, plan_from_rules(run)) for run in begun]
    ready = [search for search in searches if all(map(search.is_done, search.config.stages))]
    if len(ready) < len(runs):
        return Check("campaign.json: some searches are not done", is_there=False)
    return check("campaign.json: table and pairs", _problems(folder, campaign, ready))


def _problems(folder: CampaignFolder, campaign: Campaign, searches: Sequence[Records]) -> Iterator[str]:
    if not folder.result.exists():
        yield f"campaign.json is missing, and all searches of {campaign.name} are done."
        return
    anew = campaign_result(campaign, searches, of=summarise)
    stored, recomputed = read_json(folder.result), anew.model_dump(mode="json")
    for result in (stored, recomputed):
        result[GROWS] = sorted(result[GROWS])
    yield from differing("campaign.json ", stored, recomputed)
