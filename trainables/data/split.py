"""The fixed split of classes into training, validation and test, and its digest.

Half of the classes train and half test, as Song et al. (2016) split, unless the data set's authors published halves. A
tenth of the *training classes* validates: those with the lowest hashes of their names, so the split does not depend on
a library's random generator. Cross-validation deals the training classes into folds in the same order. For the
confirmation of a choice they are also dealt into two halves, each of which validates models of the other.

With ``merge``, every m consecutive training classes are learned as one class with several centres, as three by Li et
al. (PNP, Tables 6 and 7). With ``label_noise``, a part of the training images is learned under a wrong class (symmetric
noise, as in van Rooyen et al., 2015). Validation and test keep their own classes and the true labels.

Classes with images of a common group (the same product, shop, animal, session) stay together: what is split are the
connected components of the classes, and without groups each class is one. A component has the place of its first class
in the data set's order, and the lowest of its classes' hashes.
"""

import hashlib
import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from decimal import ROUND_HALF_UP, Decimal
from functools import cached_property
from typing import Any

from trainables.common.errors import InvalidInput, counted, listed, raise_if_any
from trainables.data.dataset import GALLERY, QUERY, Dataset, check_listing, joined_classes

FEWEST_CLASSES = 2  # in each part: one class leaves nothing to distinguish


@dataclass(frozen=True, kw_only=True)
class ClassSplit:
    """The classes that train, validate and test, made by :func:`split_dataset`.

    ``identity`` identifies the data set, and ``ratio`` is the part of the training half that trains at once. With
    ``folds``, ``train`` is the whole training half and ``validation`` is empty; each fold lists the classes that
    validate while the others train. ``halves`` are none if there are too few classes. ``joined`` lists the classes that
    share groups, and ``marks`` has the digests of the images' groups, official parts and cameras if the data set has
    them. ``images`` is the digest of the images of the training half, None until they are decoded. With a ``vault``,
    which says of itself what is here, there are no ``test`` classes.
    """

    train: tuple[str, ...]
    validation: tuple[str, ...]
    test: tuple[str, ...]
    ratio: float
    seed: int
    identity: str
    folds: tuple[tuple[str, ...], ...] = ()
    halves: tuple[tuple[str, ...], ...] = ()
    merge: int = 1
    label_noise: float = 0.0
    joined: tuple[tuple[str, ...], ...] = ()
    marks: tuple[tuple[str, str], ...] = ()
    images: str | None = None
    vault: tuple[tuple[str, str], ...] = ()

    @property
    def test_classes(self) -> int:
        """Number of classes of the test, those of a vault or ``test``."""
        return int(dict(self.vault).get("classes", len(self.test)))

    @property
    def divisions(self) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
        """Training and validation classes of each training: one pair, or one per fold."""
        if not self.folds:
            return [(self.train, self.validation)]
        return [(left_out(self.train, fold), fold) for fold in self.folds]

    def half(self, number: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the training and validation classes of the half ``number``, 1 or 2, which validates."""
        validating, training = self.halves if number == 1 else reversed(self.halves)
        return training, validating

    @property
    def validating(self) -> int:
        """Number of classes that validate a trial of the search, in all folds together."""
        return sum(len(validating) for _, validating in self.divisions)

    def _content(self) -> dict[str, Any]:
        """Return the fields as JSON types, without those that have their defaults."""
        of_fields = {entry.name: (getattr(self, entry.name), entry.default) for entry in fields(self)}
        content = {name: value for name, (value, default) in of_fields.items() if value != default}
        content |= {name: dict(content[name]) for name in ("marks", "vault") if name in content}
        return json.loads(json.dumps(content))

    @cached_property  # every trial records it, and there may be ten thousand classes
    def digest(self) -> str:
        """SHA-256 (hex) of the split and of the training half's images; results with equal digests are comparable."""
        return _sha256(self._content())

    @property
    def test_digest(self) -> str:
        """SHA-256 (hex) of the names of the test classes, independent of their order and of the rest of the split.

        It does not cover the images, which may not be read before the test is opened. A vault has a salted digest of
        its images.
        """
        names = {"identity": self.identity, "test": sorted(self.test)}
        return dict(self.vault)["test"] if self.vault else _sha256(names)

    def to_json(self) -> dict[str, Any]:
        """Return the split and its digests, for ``split.json``."""
        return {**self._content(), "digest": self.digest, "test_digest": self.test_digest}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "ClassSplit":
        """Return the split written by :meth:`to_json`; raise :class:`InvalidInput` if keys are missing or edited."""
        needed = [entry.name for entry in fields(cls) if entry.default is MISSING]
        if missing := [name for name in (*needed, "digest") if name not in content]:
            raise InvalidInput(f"The split has no {missing[0]!r} and cannot be read. Restore the file.")
        split = cls(**{entry.name: _frozen(content[entry.name]) for entry in fields(cls) if entry.name in content})
        if split.digest != content["digest"]:
            digests = f"its digest is {split.digest}, and the file says {content['digest']}"
            raise InvalidInput(f"The split was edited: {digests}. Restore the file.")
        return split


def _frozen(value: Any) -> Any:
    """Return a value of JSON with tuples in place of lists and mappings."""
    entries = value.items() if isinstance(value, dict) else value
    return tuple(map(_frozen, entries)) if isinstance(value, dict | list | tuple) else value


def _sha256(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def left_out(names: Sequence[str], fold: Sequence[str]) -> tuple[str, ...]:
    """Return ``names`` without those of ``fold``, in their order."""
    fold_names = frozenset(fold)
    return tuple(name for name in names if name not in fold_names)


def split_dataset(
    dataset: Dataset,
    classes: Mapping[str, Sequence[str]],
    *,
    ratio: float,
    seed: int,
    folds: int | None = None,
    merge: int | None = None,
    label_noise: float = 0.0,
    held: bool = False,
) -> ClassSplit:
    """Split the ``classes`` of a data set, given in its own order with their images, after :func:`check_listing`.

    The first floor(C / 2) classes, or the first published half, are the training half. Of its C_train classes, the
    max(2, C_train × (1 − ratio) rounded half up) with the smallest SHA-256 of ``seed:class name`` validate. With
    ``folds``, ``ratio`` is ignored and all of them validate in turn, dealt in the order of their hashes: the first of
    ten folds equals the validation classes of the fixed split at 0.9. Each part keeps the order of ``classes``. The
    halves for the confirmation are dealt like two folds; there are none if one would have fewer than two classes.

    Classes with a common group stay together, as a unit. The training half takes whole units until it has
    floor(C / 2) classes or more. The validation passes over those that it has no room for; if fewer than two classes
    fit, the smallest others join. A fold takes those whose first class falls into its range. With ``held`` a vault has
    the test classes, and all of these are the training half.

    Raises:
        InvalidInput: a ratio outside (0, 1), fewer than two classes in a part, classes that are all joined, or joined
            classes in different published halves.
    """
    check_listing(dataset, classes)
    marks = {"groups": dataset.groups(), "parts": dataset.parts(), "cameras": dataset.cameras()}
    joined, class_names = joined_classes(classes, marks["groups"]), list(classes)
    if not 0 < ratio < 1:
        raise InvalidInput(f"split.ratio must be between 0 and 1, such as 0.9; it is {ratio}.")
    together = {name: names for names in joined for name in names}
    units = list(dict.fromkeys(together.get(name, (name,)) for name in class_names))
    if joined and len(units) == 1:
        what = f"All {len(class_names)} classes are joined by the groups that they share ({listed(units[0], shown=3)})"
        fix = "give the images of fewer classes the same group"
        raise InvalidInput(f"{what}, and a group never crosses the split; {fix}.")
    half, test = _halves(class_names, (class_names, ()) if held else dataset.published_split(), units)
    if folds and FEWEST_CLASSES * folds > len(half) >= 2 * FEWEST_CLASSES:
        raise InvalidInput(
            f"split.folds is {folds} and the training half has {len(half)} classes; at least {FEWEST_CLASSES} of them "
            f"must validate in each fold, and as many must train: give {len(half) // FEWEST_CLASSES} folds at most."
        )
    digest_of = {name: hashlib.sha256(f"{seed}:{name}".encode()).digest() for name in half}
    training = [unit for unit in units if unit[0] in digest_of]
    hashed = sorted(training, key=lambda unit: min(map(digest_of.__getitem__, unit)))
    position = {name: number for number, name in enumerate(half)}
    share = len(half) * (1 - Decimal(repr(ratio)))  # in decimal arithmetic, in which 0.9 is exact
    count = max(FEWEST_CLASSES, int(share.quantize(Decimal(1), rounding=ROUND_HALF_UP)))
    parts = _dealt(hashed, min(folds, len(half) + 1)) if folds else [_validating(hashed, count)]
    in_order, halves = (
        tuple(tuple(sorted(part, key=position.__getitem__)) for part in dealt)
        for dealt in (parts, _dealt(hashed, 2) if len(hashed) > 1 else ())
    )
    merge = merge or 1
    if any(len(part) <= merge * (FEWEST_CLASSES - 1) for part in halves):
        halves = ()
    validation = () if folds else in_order[0]
    split = ClassSplit(
        train=left_out(half, validation),
        validation=validation,
        test=test,
        ratio=1 - 1 / folds if folds else float(ratio),
        seed=seed,
        identity=dataset.identity(),
        folds=in_order if folds else (),
        halves=halves,
        merge=merge,
        label_noise=label_noise,
        joined=joined,
        marks=tuple((name, _sha256(dict(found))) for name, found in marks.items() if found),
    )
    _refuse_too_few(split, held=held)
    return split


Unit = tuple[str, ...]  # classes that stay together; without groups a single one


def _validating(units: Sequence[Unit], count: int) -> list[str]:
    """Return the classes of the first units that fit among ``count``, and of the smallest others if these are few."""
    taken: list[str] = []
    for unit in units:
        if len(taken) + len(unit) <= count:
            taken += unit
    for unit in sorted(units, key=len):
        if len(taken) < FEWEST_CLASSES and unit[0] not in taken:
            taken += unit
    return taken


def _halves(
    class_names: Sequence[str], published: tuple[Sequence[str], Sequence[str]] | None, units: Sequence[Unit]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if published is None:
        half: set[str] = set()
        for unit in units:
            if len(half) < len(class_names) // 2:
                half.update(unit)
        return tuple(name for name in class_names if name in half), left_out(class_names, tuple(half))
    train, test = map(tuple, published)
    known = set(class_names)
    if missing := [name for name in (*train, *test) if name not in known]:
        which = f"{len(missing)} of the {len(train) + len(test)} classes of the published split are not in the data"
        raise InvalidInput(f"{which}: {listed(missing)}. The data set is incomplete: unpack it again.")
    assert not set(train) & set(test), "published halves that share classes"
    if crossing := [unit for unit in units if len({name in test for name in unit}) > 1]:
        which = f"{counted(len(crossing), 'set')} of classes with a common group in both the training and the test half"
        fix = "a group never crosses the split: correct the groups or the parts"
        raise InvalidInput(f"{which}, such as {listed(crossing[0], shown=5)}; {fix}.")
    return train, test


def _dealt(units: Sequence[Unit], folds: int) -> list[list[str]]:
    """Deal units into ``folds`` ranges of classes; the first are larger by one if the division is uneven."""
    size, larger = divmod(sum(map(len, units)), folds)
    ends = [(fold + 1) * size + min(fold + 1, larger) for fold in range(folds)]
    parts: list[list[str]] = [[] for _ in ends]
    dealt = 0
    for unit in units:
        parts[bisect_right(ends, dealt)] += unit
        dealt += len(unit)
    return parts


def _refuse_too_few(split: ClassSplit, *, held: bool) -> None:
    """Raise if a part has fewer than two classes, counting merged ones as one; the test may if a vault has it."""
    half = len(split.train) + len(split.validation)
    train, validation = (min(map(len, parts)) for parts in zip(*split.divisions, strict=True))
    few = min(train, validation) < FEWEST_CLASSES
    if (len(split.test) < FEWEST_CLASSES and not held) or (few and (not split.folds or half < 2 * FEWEST_CLASSES)):
        raise InvalidInput(
            f"The data set has {counted(half + len(split.test), 'class', 'classes')}: {half} in the training half and "
            f"{len(split.test)} in the test half. At split.ratio {split.ratio}, {validation} of the training half "
            f"validate and {train} are left to train. Each part needs at least {FEWEST_CLASSES}: give more "
            f"classes or another split.ratio{', or fewer classes with common groups' if split.joined else ''}."
        )
    if few:
        why = f"classes that share a group stay together, which leaves a fold with fewer than {FEWEST_CLASSES} classes"
        raise InvalidInput(f"split.folds is {len(split.folds)}, and {why}; give fewer folds.")
    if train <= split.merge * (FEWEST_CLASSES - 1):
        why = f"{train} classes train at once, which merges them into one"
        raise InvalidInput(f"split.merge is {split.merge} and {why}; give less than {train}.")


def check_classes(split: ClassSplit, dataset: Dataset, classes: Mapping[str, Sequence[str]]) -> None:
    """Check, without opening images, that each part can be trained or scored.

    No class is empty, each part has a class with two images, and each official query an image of its class in its
    gallery. The query of a class with one image has nothing to find and counts as a miss.
    """
    noun, sentences = dataset.noun, []
    scored = [*(("validation", names) for _, names in split.divisions), *([("test", split.test)] if split.test else ())]
    for part, names in (("train", split.train), *scored):
        if empty := [name for name in names if not classes[name]]:
            sentences.append(
                f"{len(empty)} of the {len(names)} {part} classes have no {noun.removesuffix('s')}: {listed(empty)}. "
                f"Add {noun} or remove these classes."
            )
        elif max(len(classes[name]) for name in names) < 2:  # a query and one image to find
            what = f"None of the {len(names)} {part} classes has 2 {noun}"
            sentences.append(f"{what}, and a class with one has nothing to find. Add {noun}.")
    parts, cameras = dataset.parts(), dataset.cameras()
    by_other = " that another camera took" if cameras else ""
    for part, names in scored if parts or cameras else ():
        relevant_of = {key: count for name in names for key, count in _relevant(classes[name], parts, cameras)}
        official = [key for key in relevant_of if parts.get(key) == QUERY]
        if without := [key for key in official if not relevant_of[key]]:
            sentences.append(
                f"A gallery without the query's class: {len(without):,} of the {len(official):,} {part} queries have "
                f"no image of their class{by_other} in it, such as {listed(without, shown=3)}. Add images, or remove "
                "these queries."
            )
        elif not any(relevant_of.values()):
            what = f"No query of the {len(names)} {part} classes has an image of its class{by_other} to find"
            sentences.append(f"{what}. Correct the parts and cameras of the images.")
    raise_if_any(list(dict.fromkeys(sentences)))


def _relevant(keys: Sequence[str], parts: Mapping[str, str], cameras: Mapping[str, str]) -> list[tuple[str, int]]:
    """Return the queries among the images of a class, each with the number of relevant images in its gallery."""
    gallery = Counter(cameras.get(key, key) for key in keys if parts.get(key) != QUERY)
    size = gallery.total()
    return [(key, size - gallery[cameras.get(key, key)]) for key in keys if parts.get(key) != GALLERY]


def merged_sizes(class_sizes: Sequence[int], merge: int) -> list[int]:
    """Return the number of images in each merged class.

    >>> merged_sizes([5, 6, 7, 8, 9], 2)
    [11, 15, 9]
    """
    return [sum(class_sizes[start : start + merge]) for start in range(0, len(class_sizes), merge)]


def learned_sizes(split: ClassSplit, classes: Mapping[str, Sequence[str]], train: Sequence[str]) -> list[int]:
    """Return the number of images in each of the classes ``train`` as it is learned: merged, with its wrong labels."""
    sizes = merged_sizes([len(classes[name]) for name in train], split.merge)
    if not split.label_noise:
        return sizes
    labels = [label for label, size in enumerate(sizes) for _ in range(size)]
    keys = [key for name in train for key in classes[name]]
    return [*Counter(noisy_labels(labels, keys, rate=split.label_noise, seed=split.seed)).values()]


def noisy_labels(labels: Sequence[int], keys: Sequence[str], *, rate: float, seed: int) -> list[int]:
    """Replace the labels of some images by other labels, all equally likely.

    An image's label is replaced if the first eight bytes of SHA-256 of ``label noise:seed:key``, divided by 2⁶⁴, are
    less than ``rate``. So the images are the same in each fold, and those of a lower rate are among those of a higher.

    ``labels`` are those of the images ``keys``, in 0 … C−1, all of which occur.

    >>> noisy_labels([0, 0, 1, 1, 2, 2], "abcdef", rate=0.5, seed=0)
    [2, 2, 0, 2, 2, 1]
    """
    classes, threshold = len(set(labels)), rate * 2**64
    noisy = []
    for label, key in zip(labels, keys, strict=True):
        digest = hashlib.sha256(f"label noise:{seed}:{key}".encode()).digest()
        if int.from_bytes(digest[:8], "big") < threshold:
            label = (label + 1 + int.from_bytes(digest[8:16], "big") % (classes - 1)) % classes
        noisy.append(label)
    return noisy
