"""The result of a campaign, computed from its searches."""

from collections.abc import Iterable, Iterator, Sequence

from search.campaigns.cells import (
    CampaignEpochs,
    CampaignResult,
    FoldModel,
    data_axes,
    fewer_classes,
    measured,
    sweeps,
)
from search.campaigns.comparisons import (
    baseline_rows,
    campaign_curves,
    comparisons,
    optimism,
    paired_columns,
    paired_rows,
    published_number,
    rows_of_role,
    standings,
    tested_metrics,
    wanted_pairs,
)
from search.campaigns.tables import campaign_csv, campaign_tables, data_set_tables
from search.config.campaign import Campaign
from search.driver.synchronise import synchronise_campaign
from search.plan.plan import Plan
from search.plan.runs import CampaignFolder, RunFolder
from search.plan.search import OpenedSearch
from search.report.comparison import (
    chosen_after_opening,
    image_set_of,
    openings_told,
    training_told,
    unlike_told,
)
from search.report.results import Summary
from search.report.rows import Row
from search.report.scored import scored_openings
from search.report.text_table import as_markdown, rows_as_markdown
from search.selection import Family, Selection
from search.stages import Role, Stage
from search.trials import epochs_trained


def fold_models(campaign: Campaign, search: OpenedSearch) -> Iterator[FoldModel]:
    """Yield the models of each fold of the first opening, as in the thesis's Table 13; none without folds."""
    folder = search.plan.folder
    openings = scored_openings(folder.test)
    if not openings:
        return
    selection = Selection.load(folder.selection)
    chosen = {Role.DEFAULT: selection.defaults, Role.TUNED: selection.chosen}
    for loss in selection.chosen:
        trained = [trial.user_attrs | {"value": trial.value} for trial in search.trials(loss, Stage.TEST)]
        values = {(made["source_trial"], made["seed"], made.get("fold")): made["value"] for made in trained}
        for role in campaign.config.table.roles:
            number = chosen[role][loss].number
            models = [model for model in openings[0].scores if (model.loss, model.source_trial) == (loss, number)]
            seeds = list(dict.fromkeys(model.seed for model in models))
            for model in models:
                if model.fold is not None:
                    yield FoldModel(
                        search=search.name,
                        loss=loss,
                        role=role,
                        training=seeds.index(model.seed) + 1,
                        fold=model.fold,
                        objective=search.config.objective,
                        validation=values[number, model.seed, model.fold],
                        test={
                            name: model.metrics[name] for name in campaign.config.table.metrics if name in model.metrics
                        },
                    )


def campaign_family(campaign: Campaign) -> Family:
    """Return the rows, pairs and metrics of the table, which are frozen with the choices."""
    baselines = baseline_rows(campaign)
    pairs = wanted_pairs({**paired_rows(campaign), **baselines}, paired_columns(campaign))
    rows = {row for role in campaign.config.table.roles for row in rows_of_role(campaign, role)}
    return Family(
        metrics=frozenset(tested_metrics(campaign)),
        rows=frozenset(rows | baselines.keys()),
        pairs=frozenset(map(frozenset, pairs)),
        within=campaign.members[0].config.final.within,
    )


def campaign_result(campaign: Campaign, results: Sequence[tuple[OpenedSearch, Summary]]) -> CampaignResult:
    """Return the result of a campaign, derived from the searches' records.

    Args:
        campaign: the campaign.
        results: its searches and their summaries, in the order of its members.
    """
    searches, summaries = [search for search, _ in results], [summary for _, summary in results]
    cells = measured(campaign, summaries)
    pairs, trends, left_out = comparisons(campaign, results)
    folders = [search.plan.folder for search in searches]
    by_image_set: dict[str, list[RunFolder]] = {}
    for folder in folders:
        by_image_set.setdefault(image_set_of(folder), []).append(folder)
    rows = [row for summary in summaries for row in summary.rows]
    return CampaignResult(
        name=campaign.name,
        study=campaign.config.study,
        searches={
            search.name: dict(zip(campaign.config.vary, member.labels, strict=True))
            for search, member in zip(searches, campaign.members, strict=True)
        },
        data_axes=tuple(data_axes(campaign)),
        cells=tuple(cells),
        chosen={
            summary.name: {loss: entry.chosen.params or {} for loss, entry in summary.losses.items() if entry.chosen}
            for summary in summaries
        },
        tournaments={
            role: found for role in campaign.config.table.roles if (found := standings(campaign, cells, role))
        },
        published_tournaments={
            role: found
            for role in campaign.config.table.roles
            if (found := standings(campaign, cells, role, published_number))
        },
        optimism=optimism(campaign, summaries),
        pairs=tuple(pairs),
        trends=tuple(trends),
        left_out=tuple(left_out),
        folds=tuple(model for search in searches for model in fold_models(campaign, search)),
        anytime=tuple(campaign_curves(campaign, summaries)),
        epochs=CampaignEpochs(
            search=_epochs(searches, Stage.SEARCH),
            confirm=_epochs(searches, Stage.SELECT),
            final=_epochs(searches, Stage.TEST),
        ),
        openings={
            digest: f"{openings_told(sharing)}{_of_data_sets(campaign, sharing)}"
            for digest, sharing in by_image_set.items()
        },
        warnings=(
            *training_told(folders),
            *_unlike_told(campaign, folders, rows),
            *chosen_after_opening(folders, campaign_family(campaign), [row.key for row in rows if row.test]),
            *sweeps(campaign),
            *fewer_classes(campaign),
        ),
    )


def _unlike_told(campaign: Campaign, folders: Sequence[RunFolder], rows: Sequence[Row]) -> Iterator[str]:
    """Yield a sentence for each column of the table whose ``rows`` differ in the network or its images."""
    columns, by_key = paired_columns(campaign), {row.key: row for row in rows}
    folder_of = {folder.name: folder for folder in folders}
    test_of = {folder.name: image_set_of(folder) for folder in folders}
    by_column: dict[tuple[str, ...], list[Row]] = {}
    for role in campaign.config.table.roles:
        for key, found in rows_of_role(campaign, role).items():
            column = (test_of[key.search], *(found[axis] for axis in columns))
            by_column.setdefault(column, []).append(by_key[key])
    for of_column in by_column.values():
        yield from unlike_told([folder_of[search] for search in {row.search for row in of_column}], of_column)


def _of_data_sets(campaign: Campaign, sharing: Sequence[RunFolder]) -> str:
    """Return the data sets of searches that share a test set, in brackets; empty if the campaign has only one."""
    axes, names = data_axes(campaign), {folder.name for folder in sharing}
    found = {
        " ".join(label for axis, label in zip(campaign.config.vary, member.labels, strict=True) if axis in axes)
        for member in campaign.members
        if member.config.name in names
    }
    return f" ({', '.join(sorted(found))})" if axes else ""


def _epochs(searches: Sequence[OpenedSearch], stage: Stage) -> int:
    return sum(epochs_trained(search.trials(loss, stage)) for search in searches for loss in search.config.loss_names)


def record_campaign(plans: Iterable[Plan], campaign: Campaign, result: CampaignResult, folder: CampaignFolder) -> None:
    """Write the campaign's run into MLflow: its table and numbers of epochs."""
    tables = campaign_tables(campaign, result, [])
    of_data = data_set_tables(campaign, result)
    titles = [f"{table.title}\n\n" if len(of_data) > 1 else "" for table in of_data]
    shown = [f"{title}{rows_as_markdown(table)}" for title, table in zip(titles, of_data, strict=True)]
    sentence = f"{campaign.config.study} The runs below this one are its searches."
    synchronise_campaign(
        plans,
        campaign.name,
        description="\n\n".join((*shown, sentence)),
        metrics={
            "epochs/search": result.epochs.search,
            "epochs/confirm": result.epochs.confirm,
            "epochs/final": result.epochs.final,
        },
        texts={"table.md": as_markdown(tables), "table.csv": campaign_csv(result)},
        files=[path for path in (folder.config, folder.result, folder.report) if path.exists()],
    )
