"""A search made ready: its split, its spaces and its images, from which every training follows."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial

from search.config.search_config import SearchConfig
from search.plan.runs import RunFolder
from search.selection.seal import SealedTest
from search.selection.selection import Confirmation, Selection, finalists
from search.study.budget import Budget, budget_of
from search.study.names import Stage, short_study_name, study_name
from search.study.pruners import PRUNERS
from search.study.study import LossStudy
from search.study.trial_queue import QueuedStudy, Stage
from search.study.trial_value import ByEpoch, ByFold, TrialValue
from spaces.search_space import SearchSpace, split_values
from spaces.space import Value
from trainables.data.augment import short_side_needed
from trainables.data.split import ClassSplit
from trainables.data.store_spec import StoreSpec
from trainables.spec import TrialSpec, derived_seed


def default_cache() -> str:
    """Where a node keeps decoded images when the search file names no place."""
    return str(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdout")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that is fixed before the first trial."""

    config: SearchConfig
    folder: RunFolder
    split: ClassSplit
    spaces: Mapping[str, SearchSpace]
    noise_splits: tuple[ClassSplit, ...] = ()

    @cached_property  # every trial's spec names them, and the data set is read once
    def images(self) -> StoreSpec:
        """The images of the training half, and of it alone."""
        half = {*self.split.train, *self.split.validation}
        dataset = self.config.dataset.source
        return StoreSpec(
            dataset=dataset,
            class_names=tuple(name for name in dataset.classes() if name in half),
            short_side=self._short_side,
            cache=self._cache,
        )

    @property
    def sealed_test(self) -> SealedTest:
        """The test classes, under their seal."""
        return SealedTest(
            dataset=self.config.dataset.source, split=self.split, short_side=self._short_side, cache=self._cache
        )

    @property
    def _cache(self) -> str:
        return self.config.dataset.cache or default_cache()

    @property
    def _short_side(self) -> int:
        training = self.config.training
        return short_side_needed(training.augment, training.frame, self.config.dataset.store_size)

    @property
    def shared(self) -> str:
        """What all nodes have to share, a path or a URL: checkpoints go there."""
        return (self.config.checkpoints.place or str(self.folder.runs.resolve())).rstrip("/")

    def _checkpoints(self, course: str, number: int) -> str:
        """Where a trial's attempts keep their checkpoints."""
        return f"{self.shared}/{self.config.name}/trials/{course}/{number:04d}"

    @property
    def metrics(self) -> tuple[str, ...]:
        """What each epoch's validation computes: the metrics asked for, and the objective."""
        return tuple(dict.fromkeys((*self.config.metrics.validation, self.config.search.objective)))

    @property
    def steps(self) -> int:
        """After how many epochs, or folds, a search trial is done."""
        return len(self.split.folds) or self.config.training.epochs

    @property
    def unit(self) -> str:
        """What :attr:`steps` counts."""
        return self.trial_value(Stage.SEARCH).unit

    def trial_value(self, stage: Stage) -> TrialValue:
        """What a trial of ``stage`` is trial_value while it runs."""
        objective = self.config.search.objective
        if self.split.folds and stage != Stage.TEST:
            return ByFold(objective=objective, epochs=self.config.training.epochs)
        return ByEpoch(objective=objective)

    def budget(self, loss: str) -> Budget:
        """How much is searched for ``loss``."""
        epochs = self.config.training.epochs * (len(self.split.folds) or 1)
        return budget_of(loss, self.spaces[loss], self.config.search, epochs_each=epochs)

    def study(self, storage: RDBStorage, loss: str, stage: Stage) -> LossStudy:
        """The study of ``loss`` in ``stage``, opened or made."""
        search = self.config.search
        return LossStudy(
            storage,
            study_name(self.config.name, loss, stage),
            space=self.spaces[loss],
            trial_value=self.trial_value(stage),
            # Later stages train what is enqueued, to the end.
            pruner=PRUNERS[search.pruner if stage == Stage.SEARCH else "none"](steps=self.steps, unit=self.unit),
            sampler=self.budget(loss).sampler if stage == Stage.SEARCH else None,
            attributes={
                "split_digest": self.split.digest,
                "objective": search.objective,
                "default": self.spaces[loss].default,
                "clipped": list(self.spaces[loss].clipped),
            },
        )

    def spec(self, loss: str, stage: Stage, trial: FrozenTrial) -> TrialSpec:
        """The training that ``trial`` stands for."""
        hyperparameters, training = split_values(trial.user_attrs["params"])
        split = (self.split, *self.noise_splits)[trial.user_attrs.get("split", 0)]
        on_all = stage == Stage.TEST and self.config.final.train_on == "all"
        if on_all:
            epochs = trial.user_attrs["epochs"]
            warmup = training.get("warmup_epochs", self.config.training.warmup_epochs)
            training |= {"epochs": epochs, "warmup_epochs": min(warmup, epochs)}
        spec = TrialSpec(
            loss=loss,
            hyperparameters=hyperparameters,
            model=self.config.model,
            training=replace(self.config.training, **training),
            images=self.images,
            train_classes=(*split.train, *split.validation) if on_all else split.train,
            validation_classes=() if on_all else split.validation,
            merge=split.merge,
            folds=() if on_all else split.folds,
            metrics=self.metrics,
            objective=self.config.search.objective,
            seed=trial.user_attrs["seed"],
            directory=self._checkpoints(short_study_name(loss, stage), trial.number),
        )
        fold = trial.user_attrs.get("fold")
        return spec if fold is None else spec.of_fold(fold)

    def _course(self, study: LossStudy, loss: str, stage: Stage, budget: Budget) -> QueuedStudy:
        return QueuedStudy(
            loss=loss,
            study=study,
            budget=budget,
            prune=stage == Stage.SEARCH,
            seed=partial(derived_seed, self.config.search.seed, loss),
            spec=partial(self.spec, loss, stage),
        )

    def noise_stage(self, storage: RDBStorage) -> Stage:
        """One configuration with several seeds, and with the first of them on other class splits."""
        noise, loss = self.config.noise, self.config.noise_loss
        given = {} if noise.configuration == "default" else noise.configuration
        runs = [(seed, 0) for seed in range(noise.seeds)] + [(0, split + 1) for split in range(noise.splits)]
        wanted = [
            (self.spaces[loss].complete(given), {"seed": self._shared_seed(Stage.NOISE, seed), "split": split})
            for seed, split in runs
        ]
        return Stage(name=Stage.NOISE, courses=[self._enqueued(storage, loss, Stage.NOISE, wanted)])

    def search_stage(self, storage: RDBStorage) -> Stage:
        """The search itself. Trial 0 of every loss is the papers' default."""
        courses = []
        for loss in self.config.losses:
            study = self.study(storage, loss, Stage.SEARCH)
            if not study.trials():
                study.enqueue([(self.spaces[loss].default, {"default": True})])
            courses.append(self._course(study, loss, Stage.SEARCH, self.budget(loss)))
        return Stage(name=Stage.SEARCH, courses=courses)

    def confirm_stage(self, storage: RDBStorage) -> Stage:
        """The finalists and the default again, with fresh seeds that are the same for all losses."""
        courses = []
        for loss in self.config.losses:
            searched = self.study(storage, loss, Stage.SEARCH).trials()
            wanted = [
                (trial.params, {"configuration": trial.number, "seed": self._shared_seed(Stage.SELECT, index)})
                for trial in finalists(searched, self.config.selection.finalists)
                for index in range(self.config.selection.seeds)
            ]
            courses.append(self._enqueued(storage, loss, Stage.SELECT, wanted))
        return Stage(name=Stage.SELECT, courses=courses)

    def final_stage(self, storage: RDBStorage, selection: Selection) -> Stage:
        """The chosen configuration and the default of every loss, trained for the test.

        Under cross-validation the model of every fold is trained, to be scored by itself (as in Tables 12 and 13 of
        Metric Learning: A Deep Dive), unless all training classes train.
        """
        courses = []
        for loss, chosen in selection.chosen.items():
            searched = self.study(storage, loss, Stage.SEARCH).trials()
            trained = {entry.number: entry for entry in (chosen, selection.defaults[loss])}
            wanted = [
                (searched[number].params, {**attributes, "seed": self._shared_seed(Stage.TEST, index)})
                for number, entry in trained.items()
                for index in range(self.config.final.seeds)
                for attributes in self._final_attributes(entry)
            ]
            courses.append(self._enqueued(storage, loss, Stage.TEST, wanted))
        return Stage(name=Stage.TEST, courses=courses)

    def _final_attributes(self, entry: Confirmation) -> list[dict[str, Any]]:
        """What each seed of a configuration trains: one model, or one a fold."""
        attributes = {"configuration": entry.number}
        if self.config.final.train_on == "all":
            return [{**attributes, "epochs": entry.median_best_epoch or self.config.training.epochs}]
        return [{**attributes, "fold": fold + 1} for fold in range(len(self.split.folds))] or [attributes]

    def _shared_seed(self, stage: Stage, index: int) -> int:
        return derived_seed(self.config.search.seed, stage.trainings, index)

    def _enqueued(
        self, storage: RDBStorage, loss: str, stage: Stage, wanted: list[tuple[dict[str, Value], dict[str, Any]]]
    ) -> QueuedStudy:
        study = self.study(storage, loss, stage)
        study.enqueue(wanted)
        return self._course(study, loss, stage, Budget(trials=len(wanted)))
