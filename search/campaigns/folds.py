"""The folds of a campaign's cross-validations one by one, as the thesis's Table 13 has them."""

from collections.abc import Iterator

from search.campaigns.campaign import Campaign
from search.campaigns.results.types import FoldModel
from search.plan.search import Search
from search.report.results.scored_openings import scored_openings
from search.selection.role import Role
from search.selection.selection import Selection
from search.study.names import Stage


def fold_models(campaign: Campaign, search: Search) -> Iterator[FoldModel]:
    """Each fold's model of what the table shows, of the first opening; none where the search has no folds."""
    folder = search.plan.folder
    openings = scored_openings(folder.test)
    if not openings:
        return
    selection = Selection.load(folder.selection)
    chosen = {Role.DEFAULT: selection.defaults, Role.TUNED: selection.chosen}
    for loss in selection.chosen:
        trained = [trial.user_attrs | {"value": trial.value} for trial in search.trials(loss, Stage.TEST)]
        values = {(made["configuration"], made["seed"], made.get("fold")): made["value"] for made in trained}
        for role in campaign.config.table.roles:
            number = chosen[role][loss].number
            models = [model for model in openings[0].scores if (model.loss, model.configuration) == (loss, number)]
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
