"""The comparison of default and tuned losses, on one split and one test set."""

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from search.difference import Family, RowKey, shown_metrics, tested_pairs
from search.records.records import Records
from search.results.answer import Answer, answers
from search.results.pairs import Pair, models_of, pairs_of
from search.results.rows import Result, Row, Shown, frame_of
from search.results.summary import OlderSummary, SplitSummary, Summary
from spaces.space import MODEL, TRAINING
from trainables.common.errors import InvalidInput, counted, listed
from trainables.common.files import file_digest, read_arrays, reading
from trainables.metrics import by_chance

if TYPE_CHECKING:
    import pandas


class Comparison(Shown, Result):
    """The comparison of the losses of several searches.

    Attributes:
        changed: sentences on records that were changed or removed, which come first in every output.
        answers: the answer of each search that has chosen.
        openings: a sentence on the openings of the test classes.
        earlier_openings: the number of openings of these classes before that of the choice, by tested search.
        warnings: sentences on training with images of an opened test set, on rows that are not trained alike, and on
            choices after the opening.
        test_metrics: the metrics of the test that are shown; none while the test is sealed.
        chance: the expected values of those on the test if every query's ranking were random, where they are known
            (:func:`trainables.metrics.by_chance`).
        rows: the baselines of each search, and the default and the tuned row of each of its losses.
        left_out: sentences on rows that could not be paired.
    """

    changed: tuple[str, ...] = ()
    answers: tuple[Answer, ...] = ()
    objective: str
    split: SplitSummary
    openings: str
    earlier_openings: Mapping[str, int] = {}
    warnings: tuple[str, ...]
    test_metrics: tuple[str, ...]
    chance: Mapping[str, float] = {}
    rows: tuple[Row, ...]
    pairs: tuple[Pair, ...]
    left_out: tuple[str, ...]
    searches: tuple[Summary, ...]

    def to_frame(self) -> "pandas.DataFrame":
        return frame_of(self.rows)


def compare(searches: Sequence[Records], *, within: float | None = None) -> Comparison:
    """Return the comparison of the losses of searches, with the results that they have so far.

    ``within`` is the margin of equivalence in points; None: that which all searches froze with their choice.

    Raises:
        InvalidInput: the searches differ in split, test images or objective; or there are none yet.
    """
    if not searches:
        raise InvalidInput("No search is named; name one at least.")
    if within is not None and not 0 < within < math.inf:
        raise InvalidInput(f"within is {within:g}; the margin of equivalence is above 0, such as 1 for one point.")
    summaries = [summary_of(search) for search in searches]
    _refuse_incomparable(searches, summaries)
    rows = [row for summary in summaries for row in summary.rows]
    objective = summaries[0].objective
    computed = {name for row in rows for name in row.test or {}}
    metrics = shown_metrics(objective, computed)
    numbers = {row.key: row.number for row in rows}
    families = [search.frozen_selection.family for search in searches if search.openings]
    baselines = {search: key for family in families for search, key in family.baselines.items()}
    wanted = list(tested_pairs(numbers, baselines))
    if within is None:  # the margin that was frozen with the choices, if it is the same for all
        margins = {family.within for family in families}
        within = margins.pop() if len(margins) == 1 else None
    pairs, left_out = pairs_of(searches, rows, metrics, itertools.chain.from_iterable(wanted), wanted, within)
    comparison = Comparison(
        objective=objective,
        split=summaries[0].split,
        openings=openings_sentence(searches),
        earlier_openings=earlier_openings(searches),
        changed=tuple(changed_sentences(searches, summaries)),
        warnings=(
            *training_sentences(searches, rows),
            *unlike_sentences(searches, rows),
            *chosen_after_opening(
                searches, Family.of(metrics, numbers, wanted, within), [row.key for row in rows if row.test]
            ),
        ),
        test_metrics=tuple(metrics),
        chance=_chance(searches, metrics),
        rows=tuple(rows),
        pairs=tuple(pairs),
        left_out=tuple(left_out),
        searches=tuple(summaries),
    )
    return comparison.model_copy(update={"answers": tuple(answers(comparison, searches))})


def _chance(searches: Sequence[Records], metrics: Sequence[str]) -> dict[str, float]:
    opened = [search for search in searches if search.openings]
    if not opened or opened[0].split.marks or opened[0].openings[0].vault:
        return {}
    path = next((path for *_, path in models_of(opened[0])), None)
    if path is None or not path.exists():  # no model could be scored, or the sentence without pairs names the file
        return {}
    with reading(path):
        (labels_N,) = read_arrays(path, "labels").values()
    counts = [*Counter(labels_N.tolist()).values()]
    found = {metric: by_chance(metric, counts) for metric in metrics}
    return {metric: value for metric, value in found.items() if value is not None}


def comparison_of(search: Records) -> Comparison:
    """Return the comparison of a search alone, computed once while its records do not change."""
    return search.once(_alone)


def _alone(search: Records) -> Comparison:
    return compare([search])


def summary_of(search: Records) -> Summary:
    """Return the stored summary; derive it if there is none of this version, and while another process runs it."""
    path, summary = search.folder.summary, None
    if path.exists() and not search.is_run_elsewhere:
        with suppress(OlderSummary):
            summary = search.read(path, Summary.load)
    if summary is None:
        from search.results.summarise import summarise, written_before  # imports Optuna

        return summarise(search, written_before(path))
    search.refuse_renamed(summary.name)
    if unknown := [loss for loss in search.losses if loss not in summary.losses]:
        raise InvalidInput(
            f"{search.folder.config} names the losses {listed(unknown)}, of which {path} has no result; restore both "
            "from a copy."
        )
    return summary


def _refuse_incomparable(searches: Sequence[Records], summaries: Sequence[Summary]) -> None:
    """Raise :class:`InvalidInput` if the searches differ in split, objective, validation gallery or test images."""
    halves = {True: "with half of the training images", False: "validation classes alone"}
    galleries = {each.name: halves[each.split.training_half] for each in summaries}
    opened = ((search.name, opening) for search in searches if (opening := search.opening))
    images = {name: opening.images.digest[:12] for name, opening in opened if opening.images}
    for what, values, why in (
        ("split", {each.name: each.split.digest[:12] for each in summaries}, "have different splits"),
        ("objective", {each.name: each.objective for each in summaries}, "have different objectives"),
        ("validation gallery", galleries, "have different validation galleries"),
        ("data set", images, "were tested on different items of classes with the same names"),
    ):
        if len(set(values.values())) > 1:
            found = "; ".join(f"{name}: {value}" for name, value in values.items())
            raise InvalidInput(
                f"These searches {why} and cannot be compared ({found}); compare searches of one {what}."
            )


def changed_sentences(searches: Sequence[Records], summaries: Sequence[Summary]) -> Iterator[str]:
    """Yield a sentence for each search whose summary or scores were changed or removed, or are of another split."""
    for search, summary in zip(searches, summaries, strict=True):
        changed = {
            "summary.json was changed after it was written": summary.is_changed,
            "test.json was changed after it was written": any(
                opening.digest != opening.digest_of_content() for opening in search.openings
            ),
            "summary.json is of another split": summary.split.digest != search.split.digest,
            "a file in test/ was changed after it was written": any(
                "/" not in name and file_digest(search.folder.path / "test" / opening.id / name) != digest
                for opening in search.openings
                for name, digest in opening.files.items()
            ),
        }
        for what in (what for what, is_so in changed.items() if is_so):
            yield f"{summary.name}: {what}: the digests differ (`holdout verify {summary.name}`)"
        if lost := search.lost_opening():
            yield f"{summary.name}: {lost}"


# The network and its images.

ALIKE = (
    *(f"{MODEL}.{name}" for name in ("backbone", "weights", "embedding_dim", "pooling", "freeze", "freeze_bn")),
    *(f"{TRAINING}.{name}" for name in ("image_size", "resize_size", "resize_square", "augment")),
)
"""Settings that rows share in a fair comparison: unlike ones are criticised in the thesis, section 3.5.1."""


def unlike_sentences(searches: Sequence[Records], rows: Sequence[Row]) -> Iterator[str]:
    """Yield a sentence if ``rows`` of the searches differ in the network, the image size or the crop."""
    written = {search.name: search.settings for search in searches}
    settings = {row.key: {**written[row.search], **row.params} for row in rows if row.params is not None}
    unlike = []
    for key in ALIKE:
        by_value: dict[str, list[RowKey]] = {}
        for row, found in settings.items():
            value = found.get(key)
            by_value.setdefault(value if isinstance(value, str) else json.dumps(value), []).append(row)
        if len(by_value) > 1:
            values = (f"{value} in {listed(_names(settings, of_value))}" for value, of_value in by_value.items())
            unlike.append(f"{key} is {', but '.join(values)}")
    if unlike:
        yield f"rows differ in more than the loss, which may explain their differences: {'; '.join(unlike)}"


def _names(rows: Collection[RowKey], some: Sequence[RowKey]) -> list[str]:
    """Return the names of ``some`` of the ``rows``; a search or a loss whose rows are all among them is one name."""
    several = len({row.search for row in rows}) > 1
    names = []
    for row in some:
        of_search = {other for other in rows if other.search == row.search}
        of_loss = {other for other in of_search if other.loss == row.loss}
        label = f"{row.search}/{row.loss}" if several else row.loss
        names.append(
            row.search if several and of_search <= {*some} else label if of_loss <= {*some} else f"{label} {row.role}"
        )
    return list(dict.fromkeys(names))


# The seeds, which depend on ``search.seed`` alone: rows of two searches may be the same trainings.

OF_TRAINING = re.compile(
    rf"[^.]+$|({MODEL}|{TRAINING}|training_by_loss|trainable)\.|dataset\.store_size|final\.train_on"
    r"|metrics\.gallery|search\.objective$|selection\.(on|seeds)"
)
"""The hyperparameters and settings that define a final training, besides its split and seed."""


def seeds_sentences(searches: Sequence[Records], rows: Sequence[Row]) -> Iterator[str]:
    """Yield a sentence on tested ``rows`` whose seeds have no effect, and on those that are the same trainings."""
    trained = [row for row in rows if row.test and row.params is not None]
    keys = [row.key for row in trained]
    if idle := _names(keys, [row.key for row in trained if row.ignores_seeds]):
        yield f"{listed(idle)}: {'its' if len(idle) == 1 else 'their'} seeds have no effect, so they give no interval"
    by_training: dict[str, list[RowKey]] = {}
    for search in searches:
        written, split = search.settings, search.split.digest
        params = {(row.loss, row.number): (row.key, row.params or {}) for row in trained if row.search == search.name}
        for loss, number, seed in {model[:3] for model in models_of(search) if model[:2] in params}:
            key, found = params[loss, number]
            settings = sorted(entry for entry in {**written, **found}.items() if OF_TRAINING.match(entry[0]))
            by_training.setdefault(json.dumps([split, loss, seed, settings], default=str), []).append(key)
    same = {key for shared in by_training.values() if len(shared) > 1 for key in shared}
    if names := _names(keys, [key for key in keys if key in same]):
        yield f"{listed(names)}: rows of equal configuration and seeds are the same trainings, not replications"


# The test set.


def openings_sentence(searches: Sequence[Records]) -> str:
    """Return a sentence on the openings of the test set that ``searches`` share."""
    ledger = searches[0].ledger
    opened = [search for search in searches if search.openings]
    if not opened and any(search.lost_opening() for search in searches):
        return "this test set: opened, but the records of it are missing"
    if not opened:
        return ledger.sentence_by_names(searches[0].split.test_digest)
    openings = [opening for search in opened if (opening := search.opening)]
    if len(openings) < len(opened):
        return "this test set: opened without a line in the ledger, which was changed"
    counts = earlier_openings(searches)
    each = ", ".join(f"{name} {count}" for name, count in counts.items()) if len({*counts.values()}) > 1 else ""
    earlier = f"openings of these classes before this choice's: {each or next(iter(counts.values()))}"
    if vaults := [vault for search in opened if (vault := search.openings[0].vault)]:
        scored = [f"opening {of['number']} of {of['of']} by the vault {of['key'][:12]}" for of in vaults]
        secret = " (only the labels are secret)" if vaults[0]["labels_only"] else ""
        return f"{', '.join(dict.fromkeys(scored))}{secret}; {earlier}"
    return f"{ledger.sentence(openings[0])}; {earlier}"


def earlier_openings(searches: Sequence[Records]) -> dict[str, int]:
    """Return the number of openings of the test classes before that of the choice, by search that was tested."""
    return {
        search.name: search.ledger.earlier(opening, search.frozen_selection.digest)
        for search in searches
        if (opening := search.opening)
    }


def training_sentences(searches: Sequence[Records], rows: Sequence[Row]) -> Iterator[str]:
    """Yield a warning for each search that trained on images of an opened test set, or whose test set has copies.

    Also one for each model that could not be scored, and those on seeds.
    """
    for search in searches:
        for opening in search.openings[:1]:
            if overlap := opening.overlap:
                items = f"{overlap} test items are" if overlap > 1 else "1 test item is"
                yield f"{search.name}: {items} also among the training or validation items (split.allow_overlap)"
            if copies := opening.copies:
                copied = f"{copies:,} test items have an identical copy"
                yield f"{search.name}: {copied} in the test set, which is easily found"
            for model in opening.failed:
                seed = "" if model.seed is None else f" with seed {model.seed}"
                yield f"{search.name}: {model.loss}{seed} could not be scored on the test ({model.reason})"
            scored = (*opening.scores, *opening.baselines)
            reasons = Counter(reason for model in scored for reason in model.undefined.values())
            for reason, models in reasons.items():
                yield f"{search.name}: a value of {counted(models, 'model')} is undefined ({reason.removesuffix('.')})"
        if warning := search.trained_on_opened:
            yield f"{search.name}: {warning}"
    yield from seeds_sentences(searches, rows)


# The table as it was frozen before the opening.

AFTER = "chosen after opening"


def chosen_after_opening(searches: Sequence[Records], shown: Family, tested: Collection[RowKey]) -> Iterator[str]:
    """Yield a sentence for each part of the table ``shown`` that was not frozen before the test classes were opened.

    ``tested`` are all rows with test results, shown or not; other rows reveal nothing about the test.
    """
    opened = [search for search in searches if search.openings]
    if not opened:
        return
    families = {search.frozen_selection.family for search in opened}
    if len(families) > 1:
        names = ", ".join(search.name for search in opened)
        yield f"{AFTER}: one table for {names}; each was frozen with a separate table"
        return
    (frozen,) = families
    if shown.metrics != frozen.metrics:
        metrics = [", ".join(sorted(family.metrics)) or "none" for family in (shown, frozen)]
        yield f"{AFTER}: {metrics[0]}; the metrics frozen with the choice were {metrics[1]}"
    rows, frozen_rows = ({row for row in family.rows if row in tested} for family in (shown, frozen))
    if rows != frozen_rows:
        yield f"{AFTER}: rows ({len(rows)} shown, {len(frozen_rows)} frozen with the choice)"
    pairs, frozen_pairs = (
        {pair for pair in family.pairs if all(row in tested for row in pair)} for family in (shown, frozen)
    )
    if shown.within != frozen.within:
        margins = ["none" if margin is None else f"{margin:g}" for margin in (shown.within, frozen.within)]
        yield f"{AFTER}: the margin of equivalence is {margins[0]}; frozen with the choice was {margins[1]}"
    if pairs != frozen_pairs:
        yield f"{AFTER}: pairs ({len(pairs)} shown, {len(frozen_pairs)} frozen with the choice)"
