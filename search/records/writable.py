"""The records of a search that are written, by its driver or in memory."""

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from optuna.trial import TrialState

from search.config.search_config import parse_config, settled_digest
from search.config.yaml_file import read_yaml
from search.records.disk import mark_checkpoints
from search.records.plan import Plan, growth
from search.records.records import Records
from search.stages import Stage, study_name
from search.study import LossStudy, StudyStorage, copy_studies, open_studies
from search.tables import PRUNERS
from trainables.common.errors import InvalidInput
from trainables.common.files import file_digest, write_json, write_text


@dataclass(frozen=True, eq=False)
class WritableRecords(Records):
    """The records of a search with the ``storage`` of its studies, which its driver writes; or a check, in memory.

    Its studies are cached, so only the search's driver should keep it for long.
    """

    storage: StudyStorage = field(kw_only=True)
    _studies: dict[tuple[str, Stage], LossStudy] = field(default_factory=dict, repr=False)

    def close(self) -> None:
        self.storage.close()

    @cached_property
    def studies(self) -> StudyStorage:
        return self.storage

    def attributes(self, loss: str, stage: Stage = Stage.SEARCH) -> dict[str, Any]:
        """Return the user attributes of a loss's study in a stage, without creating the study."""
        return self.storage.attributes_of(study_name(self.name, loss, stage))

    def study(self, loss: str, stage: Stage) -> LossStudy:
        """Return a loss's study in a stage; create it if it does not exist."""
        if (loss, stage) not in self._studies:
            self._studies[loss, stage] = self._open(loss, stage)
        return self._studies[loss, stage]

    def _open(self, loss: str, stage: Stage) -> LossStudy:
        plan, search = self.plan, self.config.search
        searching = stage is Stage.SEARCH
        budget = plan.budget(loss)
        planned = {"planned_trials": budget.most, "planned_epochs": budget.epochs} if searching else {}
        return LossStudy(
            self.storage,
            study_name(self.name, loss, stage),
            space=plan.spaces[loss],
            objective=self.config.objective,
            # Other stages train enqueued trials to their end.
            pruner=PRUNERS[search.pruner if searching else "none"](steps=plan.steps),
            sampler=budget.sampler if searching else None,
            goal=self.config.goal if searching else None,
            attributes={
                "settled_digest": settled_digest(self.config.model_dump(mode="json")),
                **_begun_with(plan),
                "objective": self.config.objective,
                "default": dict(plan.spaces[loss].default),
                "clipped": list(plan.spaces[loss].clipped),
                **planned,
            },
        )

    def begin_anew(self, loss: str, stage: Stage) -> None:
        """Replace a study without a value by a new one; the default and trials of the user's are enqueued again.

        The journal keeps the lines of the old one, and the attribute ``retried`` the outcomes of its failed trials.
        """
        name, trials = study_name(self.name, loss, stage), self.trials(loss, stage)
        before = self.storage.attributes_of(name)
        failed = [trial.user_attrs["outcome"] for trial in trials if trial.state == TrialState.FAIL]
        kept: dict[str, Any] = {key: before[key] for key in ("sessions", "slots") if key in before}
        default = self.plan.spaces[loss].default  # that of the corrected code
        given = [(trial, key) for trial in trials for key in ("default", "enqueued") if key in trial.user_attrs]
        self._studies.pop((loss, stage), None)
        with self.storage.transaction():
            self.storage.delete_study(self.storage.get_study_id_from_name(name))
            study = self.study(loss, stage)
            study.set_attributes({**kept, "retried": [*before.get("retried", ()), *failed]})
            study.enqueue(
                (default if key == "default" else trial.system_attrs["fixed_params"], {key: trial.user_attrs[key]})
                for trial, key in given
            )

    def begin_session(self, started: float, slots: int) -> None:
        """Record the start of a driver (seconds since 1970), and the number of trials that it runs at once.

        A new folder of checkpoints outside of the runs folder is marked as that of this search.
        """
        mark_checkpoints(self.folder)
        first = self.study(self.losses[0], Stage.SEARCH)
        first.set_attributes({"sessions": [*self.sessions, started], "slots": slots})

    def note_opening(self, opening: str) -> None:
        """Record in the journal that the test classes were opened."""
        known = {*self.attributes(self.losses[0]).get("openings", ()), opening}
        self.study(self.losses[0], Stage.SEARCH).set_attributes({"openings": sorted(known)})


def open_search(plan: Plan) -> WritableRecords:
    """Open a search's storage and write its plan; both may exist already.

    Raises:
        InvalidInput: the journal of a search that began is missing, damaged or another search's, or it has a choice or
            scores, and what they came from is missing.
    """
    folder = plan.folder
    _refuse_lost_records(plan)
    if folder.config.exists() and not folder.journal.exists():
        raise InvalidInput(
            f"The trials of {folder.name} are gone: {folder.journal} is missing. Restore it from a copy, or remove the "
            f"rest with `holdout remove {folder.name}` and start again."
        )
    folder.path.mkdir(parents=True, exist_ok=True)
    storage = open_studies(folder.journal)  # before the search file, without which there is no search
    _refuse_other_studies(plan, storage)
    if folder.config.exists() and growth(parse_config(read_yaml(folder.config)), plan.config):
        assert not folder.test.exists(), "a tested search keeps its trials"
        for outgrown in (folder.selection, folder.summary):  # of fewer trials or losses
            outgrown.unlink(missing_ok=True)
    write_json(folder.split, plan.split.to_json())
    write_text(folder.config, plan.config.to_yaml())
    return WritableRecords(folder, plan, storage=storage)


def _begun_with(plan: Plan) -> dict[str, str | None]:
    """Return the attributes of all studies that never change; more losses and wider ranges are not among them."""
    changing = ("losses", "space", "training_by_loss", "dataset", "checkpoints")
    settings = settled_digest(plan.config.model_dump(mode="json"), without=changing)
    opened = file_digest(plan.folder.trained_on_opened)
    return {"split_digest": plan.split.digest, "settings_digest": settings, "trained_on_opened": opened}


def _refuse_other_studies(plan: Plan, storage: StudyStorage) -> None:
    """Raise if the studies are another search's, or the record of earlier openings is not the one they began with."""
    folder, begun = plan.folder, _begun_with(plan)
    for study in storage.get_all_studies():
        other = [key.removesuffix("_digest") for key, value in begun.items() if study.user_attrs.get(key) != value]
        if other or not study.study_name.startswith(f"{folder.name}/"):
            raise InvalidInput(
                f"{folder.journal} is another search's, or what {study.study_name} began with was replaced "
                f"({', '.join(other) or 'name'}); restore it from a copy, or search under a new name."
            )


def _refuse_lost_records(plan: Plan) -> None:
    folder, name, losses = plan.folder, plan.config.name, plan.config.loss_names
    results = [path.name for path in (folder.selection, folder.test) if path.exists()]
    if not results:
        return
    if not folder.selection.exists():
        raise InvalidInput(
            f"{name} has scores in {folder.test}, but {folder.selection} is missing; restore it from a copy, or search "
            "under a new name."
        )
    stored = Records(folder)
    begun = [loss for loss in losses if loss in stored.losses]  # a search that grows gets further ones
    lost = [study_name(name, loss, Stage.SEARCH) for loss in begun if not stored.tally(loss, Stage.SEARCH).trials]
    if folder.test.exists() and not any(stored.tally(loss, Stage.TEST).trials for loss in losses):
        lost += [study_name(name, loss, Stage.TEST) for loss in losses]
    if lost:
        raise InvalidInput(
            f"{name} has {' and '.join(results)}, but the trials of {', '.join(lost)} are missing; restore "
            f"{folder.journal} from a copy, or search under a new name."
        )


def in_memory(search: Records, without: Collection[str] = ()) -> WritableRecords:
    """Return the search with a copy of its studies, whose changes are not stored; those ``without`` do not exist."""
    storage = copy_studies(search.folder.journal, without)
    return WritableRecords(search.folder, search.plan, storage=storage)
