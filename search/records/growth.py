"""Growth of a stored search: more trials, further losses, wider ranges; and the successor of one that was tested."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from search.config.search_config import SearchConfig, differences
from search.config.validation import Findings
from search.records.plan import check_spaces
from search.records.records import Records
from search.records.runs import RunFolder
from spaces.search_space import SearchSpace
from spaces.space import Choice
from trainables.common.errors import listed


@dataclass(frozen=True, kw_only=True)
class Growth:
    """What a search file asks for beyond what its search began with.

    Attributes:
        trials: the number of trials; None unless it is larger.
        losses: the further losses.
        wider: the hyperparameters whose range is wider or whose list of choices is longer.
        in_place: False if a list of choices is longer, which Optuna fixes for a study.
    """

    trials: int | None = None
    losses: tuple[str, ...] = ()
    wider: tuple[str, ...] = ()
    in_place: bool = True

    def __bool__(self) -> bool:
        return bool(self.trials or self.losses or self.wider)

    def covers(self, key: str) -> bool:
        """Return True if the entry ``key`` may differ because of the further losses or the wider ranges."""
        section, _, rest = key.partition(".")
        if section in ("space", "training_by_loss") and rest.partition(".")[0] in self.losses:
            return True
        return bool(self.losses if section == "losses" else self.wider and section == "space")

    def __str__(self) -> str:
        trials = f"{self.trials} trials" if self.trials else ""
        losses = f"the loss{'es' * (len(self.losses) > 1)} {listed(self.losses)}" if self.losses else ""
        wider = f"a wider range of {listed(self.wider)}" if self.wider else ""
        return " and ".join(filter(None, (trials, losses, wider)))


def growth(before: SearchConfig, after: SearchConfig) -> Growth:
    """Return what ``after`` has beyond ``before``; a space that is not wider everywhere it differs is no growth.

    A wider range that moves a default is none either: trial 0 would no longer be the default.
    """
    kept = all(loss in after.losses for loss in before.losses)
    wider, in_place = (_wider(before, after) if kept else None) or ((), True)
    return Growth(
        trials=after.search.trials if after.search.trials > before.search.trials else None,
        losses=tuple(loss.name for loss in after.losses if loss not in before.losses) if kept else (),
        wider=wider,
        in_place=in_place,
    )


def _wider(before: SearchConfig, after: SearchConfig) -> tuple[tuple[str, ...], bool] | None:
    """Return the hyperparameters that are wider in ``after``, and whether their studies can go on."""
    then, now = (config.model_dump(mode="json", include={"space"}) for config in (before, after))
    if not any(key.startswith("space") for key, _, _ in differences(then, now)):
        return None
    found = Findings[SearchConfig]()
    old, new = (check_spaces(found, config, accepted=True) for config in (before, after))
    if found.sentences or not all(_is_as_wide(old[loss], new[loss]) for loss in before.loss_names):
        return None
    changed = [
        (name, parameter)
        for loss in before.loss_names
        for name, parameter in new[loss].parameters.items()
        if parameter.distribution != old[loss].parameters[name].distribution
    ]
    return tuple(dict.fromkeys(name for name, _ in changed)), not any(isinstance(entry, Choice) for _, entry in changed)


def _is_as_wide(old: SearchSpace, new: SearchSpace) -> bool:
    if old.default != new.default or old.parameters.keys() != new.parameters.keys():
        return False
    pairs = [(entry, new.parameters[name]) for name, entry in old.parameters.items()]
    return all(entry.when == wider.when and wider.covers(entry) for entry, wider in pairs)


def in_order(before: SearchConfig, after: SearchConfig) -> SearchConfig:
    """Return ``after`` with the losses of ``before`` first, if it has them all: the first study holds the sessions."""
    if not all(loss in after.losses for loss in before.losses):
        return after
    further = tuple(loss for loss in after.losses if loss not in before.losses)
    return after.model_copy(update={"losses": (*before.losses, *further)})


# The successor of a search.


def unfinished_defaults(search: Records) -> Iterator[str]:
    """Yield a sentence for each loss of a stored search whose default is unfinished: a successor begins with it."""
    for loss in search.losses:
        trials = search.trials(loss)
        if not trials or not trials[0].state.is_finished():
            yield (
                f"Trial 0 of {search.name}/{loss}, the default, is not finished, and a successor begins with it; "
                f"run the unchanged file of {search.name} first, or give the search a new name."
            )


def successor(folder: RunFolder) -> RunFolder:
    """Return the folder of the search that continues from that in ``folder``, which may exist: ``birds-2``.

    The successor of ``birds-2`` is ``birds-3``. Names of other searches and campaigns are skipped.
    """
    found = re.fullmatch(r"(.+)-(\d+)", folder.name) if folder.predecessor.exists() else None
    base, first = (found[1], int(found[2]) + 1) if found else (folder.name, 2)
    numbered = (RunFolder(folder.runs, f"{base}-{number}") for number in count(first))
    return next(other for other in numbered if other.predecessor_name() == folder.name or not other.path.exists())
