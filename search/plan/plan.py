"""Everything that is fixed before a search's first trial: its split, its spaces and its images."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from search.config.search_config import SearchConfig
from search.plan.disk.image_cache import default_cache
from search.plan.runs import RunFolder
from search.selection.seal import SealedTest
from search.study.budget import Budget
from search.study.names import Stage
from search.study.samplers.table import SAMPLERS
from search.study.trial_value import ByEpoch, ByFold, TrialValue
from spaces.search_space import SearchSpace
from trainables.data.augmentation.augment import short_side_needed
from trainables.data.split import ClassSplit
from trainables.data.store.spec import StoreSpec


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A search file together with what follows from it before anything is trained."""

    config: SearchConfig
    folder: RunFolder
    split: ClassSplit
    spaces: Mapping[str, SearchSpace]
    further_splits: tuple[ClassSplit, ...] = ()
    """Other splits of the same training half, which the noise stage and confirmations validate on."""
    notices: tuple[str, ...] = ()
    """What the user should know of how the search file was taken."""

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
    def checkpoint_storage(self) -> str:
        """The folder or URL that all nodes share: checkpoints go below it."""
        return (self.config.checkpoints.storage_path or str(self.folder.runs.resolve())).rstrip("/")

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
        """How the records of a trial of ``stage`` give its value."""
        objective = self.config.objective
        if self.split.folds and stage is not Stage.TEST:
            return ByFold(objective=objective, epochs=self.config.training.epochs)
        return ByEpoch(objective=objective)

    def budget(self, loss: str) -> Budget:
        """How much is searched for ``loss``."""
        return search_budget(self.config, loss, self.spaces[loss])


def search_budget(config: SearchConfig, loss: str, space: SearchSpace) -> Budget:
    """How much is searched for ``loss`` in ``space``; a trial under cross-validation trains all folds."""
    search = config.search
    return Budget(
        trials=search.trials,
        epochs=search.epochs,
        epochs_each=config.training.epochs * (config.split.folds or 1),
        sampler=SAMPLERS[search.sampler](
            loss=loss, space=space, seed=search.seed, trials=search.trials, prior=search.prior
        ),
    )
