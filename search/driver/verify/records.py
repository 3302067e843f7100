"""All checks of a search in the order in which its records depend on each other."""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from optuna.trial import FrozenTrial

from search.config.search_config import paths_of_data, settled_digest
from search.config.yaml_file import read_yaml
from search.driver.choice import selection_of
from search.driver.inputs import digest_of_images
from search.driver.make_plan import plan_from_rules
from search.driver.stages import confirm_stage, final_stage
from search.driver.verify.scores import check_scores, check_vault, decoded_anew
from search.driver.verify.studies import (
    Check,
    check,
    check_enqueued,
    check_studies,
    differing,
    file_problems,
    studies_in,
)
from search.records import ImageSet, ScoredOpening, Selection, frozen_baselines, images_in, study_digest
from search.records.plan import training_of
from search.records.records import Records
from search.records.runs import RunFolder, campaign_of
from search.results.summarise import summarise
from search.show.model_cards import checkpoint_of, chosen_model
from search.stages import BASELINES, Stage, study_name
from search.trials import by_fold, epochs_of
from search.trust import CHECKPOINTS, check_addresses, check_trusted, is_trusted, own_code
from trainables.common.errors import InvalidInput, counted, without_password
from trainables.common.files import as_path, file_digest, is_draft, read_json, reading
from trainables.inference import model_files


def verify(folder: RunFolder) -> Iterator[Check]:
    """Yield the checks of the search in ``folder`` up to the first problem; raise if it names what is not trusted."""
    code, problem = code_named(folder), None
    for found in guarded(
        lambda: _checks(folder) if is_trusted(folder.path, code) else _checks_without_code(Records(folder))
    ):
        problem = found.problem
        yield found
    if not problem:
        check_trusted(folder.path, code)


def code_named(folder: RunFolder) -> set[str]:
    """Return the code that a stored search names; raise if its records may not be contacted."""
    try:
        content = read_yaml(folder.config)
    except InvalidInput:  # the checks report it
        return set()
    check_addresses(folder.path, content, (CHECKPOINTS,))
    if folder.images and not paths_of_data(content):
        raise InvalidInput(f"--images: the data set of {folder.name} has no folder and no file; leave it out.")
    return own_code(content)


def guarded(checks: Callable[[], Iterator[Check]]) -> Iterator[Check]:
    """Yield ``checks`` up to the first problem; an error raised by unreadable records is a problem, too."""
    try:
        for found in checks():
            yield found
            if found.problem:
                return
    except InvalidInput as mistakes:
        yield Check("the records", mistakes.sentences[0])
    except Exception as error:  # changed records may raise any error
        reason = without_password(f"{type(error).__name__}: {error}").splitlines()[0]
        yield Check("the records", f"The next check cannot read them ({reason}).")


def _checks_without_code(search: Records) -> Iterator[Check]:
    yield from _check_begun(search)
    yield from check_digests(search)
    if selection := search.selection:
        yield from check_ledger(search, selection)
        for record in search.openings if search.split.vault else ():
            yield from check_vault(search, selection, record)


def _checks(folder: RunFolder) -> Iterator[Check]:
    try:
        plan = plan_from_rules(folder)
    except InvalidInput as mistakes:
        yield from _checks_without_code(Records(folder))  # its file is as it was, so this machine lacks what it names
        yield lacking("what needs more than the records", mistakes)
        return
    with decoded_anew(plan.images) as store:
        digest, training = digest_of_images(store), images_in(store)
    plan = replace(plan, split=replace(plan.split, images=digest))
    search = Records(folder, plan)
    what = f"split.json: the split {plan.split.digest[:12]}, from its rule and the training images"
    yield check(what, file_problems(folder.split, plan.split.to_json()))
    yield check(f"{folder.trained_on_opened.name}: the openings in the ledger", _opened_problems(search, training))
    yield from _check_begun(search)
    later = [path.name for path in (folder.selection, folder.test, folder.summary) if path.exists()]
    if not folder.journal.exists():
        problem = f"The studies are missing, but there is {' and '.join(later)}." if later else None
        yield Check("the studies", problem, is_there=False)
        return
    yield from check_studies(search)
    if search.is_done(Stage.SEARCH):
        yield from check_enqueued(search, Stage.SELECT, confirm_stage)
    if selection := search.selection:
        what = "selection.json: finalists and choice, by the rule from the studies"
        yield check(what, _choice_problems(search, selection))
        yield from check_enqueued(search, Stage.TEST, lambda copy: final_stage(copy, selection))
        yield from check_ledger(search, selection)
        for record in search.openings:
            yield from (check_vault if plan.split.vault else check_scores)(search, selection, record, training)
    elif any(search.trials(loss, Stage.TEST) for loss in search.config.loss_names):
        yield Check("", f"selection.json: nothing is stored, but {search.name} has final trainings.")
    yield from check_digests(search)
    yield from _check_files(search)
    if selection:
        yield from _check_models(search, selection)
    yield _summary_check(search)


def _opened_problems(search: Records, training: ImageSet) -> Iterator[str]:
    """Compare the warning about training images of an opened test set with the openings that it counted."""
    path, ledger = search.folder.trained_on_opened, search.ledger
    with reading(path):
        known = [*read_json(path)["openings"]] if path.exists() else []
    warning = ledger.opened_among_training(training, [entry for entry in ledger.openings() if entry.id in known])
    yield from file_problems(path, {"warning": warning, "openings": known})


def _choice_problems(search: Records, stored: Selection) -> Iterator[str]:
    folder = search.folder
    frozen_baselines(folder.baselines, folder.whitened, stored.baselines)  # raises if they changed
    for loss in search.config.loss_names:
        budget, trials = search.plan.budget(loss), search.trials(loss, Stage.SEARCH)
        if not budget.done(trials):
            name = study_name(search.name, loss, Stage.SEARCH)
            yield f"{name}: {len(trials)} trials are stored and {budget.most} were planned, but the choice is frozen."
    # The table of a campaign may change after the choice, so the frozen one is used; the digest protects it.
    of_campaign = campaign_of(folder.runs, folder.name) is not None
    anew = replace(selection_of(search, stored.family if of_campaign else None), id=stored.id)
    yield from file_problems(folder.selection, anew.to_json())


def _check_models(search: Records, selection: Selection) -> Iterator[Check]:
    for path in sorted((search.folder.path / "models").glob("*")):
        if path.name in (*selection.chosen, *BASELINES):
            yield check(f"models/{path.name}: the exported model", _model_problems(search, selection, path.name))
        elif not is_draft(path):
            yield Check("models/", f"{path} is of no loss; remove it.")


def _model_problems(search: Records, selection: Selection, loss: str) -> Iterator[str]:
    """Compare the files of a written model, except its card, with those that its checkpoint gives."""
    if (model := chosen_model(search, selection, loss)) is None:
        yield f"models/{loss}: the model exists, but no final training does."
        return
    with tempfile.TemporaryDirectory(prefix="holdout-verify-") as place:
        model_files.write_model(Path(place), model.weights, model.spec, "")
        written, anew = search.folder.model(loss), Path(place)
        yield from file_problems(written / model_files.DESCRIPTION, read_json(anew / model_files.DESCRIPTION))
        found: list[dict[str, str | None]] = []
        for folder in (written, anew):
            left_out = {folder / model_files.CARD, folder / model_files.DESCRIPTION}
            files = [path for path in folder.rglob("*") if not (path.is_dir() or path in left_out or is_draft(path))]
            found.append({path.relative_to(folder).as_posix(): file_digest(path) for path in files})
        yield from differing(f"{written}/ ", found[0], found[1])


def _check_files(search: Records) -> Iterator[Check]:
    """Check each ``trial.json`` of the finished trials, and that the best models are theirs and whole."""
    for stage, loss in studies_in(search):
        if trials := [trial for trial in search.trials(loss, stage) if trial.state.is_finished() and epochs_of(trial)]:
            what = f"{study_name(search.name, loss, stage)}: the files of {counted(len(trials), 'trial')}"
            yield check(what, chain.from_iterable(_file_problems(search, loss, stage, trial) for trial in trials))


def _file_problems(search: Records, loss: str, stage: Stage, trial: FrozenTrial) -> Iterator[str]:
    from trainables.losses.loss import distinct_proxies  # imports torch
    from trainables.training.epoch_training import origin_of
    from trainables.training.inputs import described_backbone

    spec = training_of(search.plan, loss, stage, trial)
    removable = stage is Stage.SEARCH and search.config.checkpoints.max_gb is not None
    for of_fold in by_fold(epochs_of(trial)):
        training = spec.of_fold(of_fold[0]["fold"]) if spec.folds else spec
        digest = described_backbone(training.model)[0] if training.model.is_frozen else None
        origin = {**origin_of(training), **model_files.frozen_backbone(digest)}
        yield from file_problems(as_path(training.directory) / "trial.json", origin)
        for record in [record for record in of_fold if record["checkpoint"]][-1:]:
            best = as_path(spec.directory) / str(record["checkpoint"])
            content = best.read_bytes() if best.is_file() else None
            if content is None:
                if not removable:
                    yield f"{best}: the model is missing."
            elif not model_files.is_whole(content):
                yield f"{best}: the model is damaged (its digest does not match)."
            else:
                described = model_files.description_of(content)["origin"]
                yield from differing(f"{best}: origin", described, {**origin, "epoch": record["epoch"]})
                if "distinct_proxies" in record:
                    proxies_CKD = model_files.parsed_tensors(content, best)[0][f"{model_files.LOSS}proxies"]
                    what, found = f"{best}: the number of distinct proxies", distinct_proxies(proxies_CKD)
                    yield from differing(what, record["distinct_proxies"], found)


def _summary_check(search: Records) -> Check:
    """Check ``summary.json`` by deriving it again, unless it is written after the current stage."""
    trials = (trial for stage, loss in studies_in(search) for trial in search.trials(loss, stage))
    if not (all(map(search.is_done, search.config.stages)) and all(trial.state.is_finished() for trial in trials)):
        return Check("summary.json (updated at the end of the current stage)", is_there=False)
    anew = summarise(search).with_digest()
    return check("summary.json: counts, values, intervals and times", file_problems(search.folder.summary, anew))


# The manifest of a search: all that a stored digest covers. No code is imported and nothing is computed again.

Entry = tuple[str, str | None, str | None]
"""A part of the records with the stored digest and that of its content, None if it is missing."""


def check_digests(search: Records) -> Iterator[Check]:
    """Yield the checks of all digests: split, choice, studies, scores, and the files and models of an opening."""
    yield Check(f"split.json: its digest {search.split.digest[:12]}")
    selection, records = search.selection, search.openings
    digest = selection and f"its digest {selection.digest[:12]}"
    yield Check(f"selection.json: {digest or 'the choice'}", is_there=selection is not None)
    manifest = {
        "baselines.json, whitened.safetensors": _baselines(search, selection),
        "the studies": _studies(search, selection, records) if selection else iter(()),
        "test.json": ((f"Opening {entry.id}", entry.digest, entry.digest_of_content()) for entry in records),
        "the scored models": chain.from_iterable(_models(search, entry) for entry in records),
        "test/": chain.from_iterable(_files(search.folder, entry) for entry in records),
    }
    for what, entries in manifest.items():
        if first := next(entries, None):
            yield check(f"{what}: their digests", _changed(chain([first], entries)))


def _check_begun(search: Records) -> Iterator[Check]:
    """Check that the search file and the record of earlier openings are as the studies began, and what is in test/."""
    settled, warning = settled_digest(read_yaml(search.folder.config)), search.folder.trained_on_opened
    files: list[Entry] = []
    for begun in search.counts.attributes.values():
        files.append((search.folder.config.name, begun.get("settled_digest"), settled))
        files.append((warning.name, begun.get(warning.stem), file_digest(warning)))
    yield check("search.yaml, trained_on_opened.json: as they were when the search began", _changed(files))
    yield check("test/: the files of the openings alone", _left_over(search))


def lacking(what: str, mistakes: InvalidInput) -> Check:
    """Return a check that this machine cannot make, with the first of the ``mistakes``."""
    first = mistakes.sentences[0].rstrip(".")
    return Check(f"{what} ({first}{' with --images' if 'dataset.' in first else ''})", is_there=False)


def _left_over(search: Records) -> Iterator[str]:
    """Yield openings that were removed from the records, and files in ``test/`` that are of none."""
    if lost := search.lost_opening():
        yield f"{lost}."
    top, records = search.folder.path / "test", search.openings
    files = {top / record.id / name for record in records for name in record.files}
    found = [*top.glob("*"), *(path for record in records for path in (top / record.id).rglob("*"))]
    for path in sorted(found):  # the files of an opening that is resumed are in another folder
        if path.is_file() and path not in files and not is_draft(path):
            yield f"{path} is of no opening; remove it."


def _changed(entries: Iterable[Entry]) -> Iterator[str]:
    for name, stored, found in entries:
        if found is None and stored:
            yield f"{name} is missing."
        elif found != stored:
            yield f"{name} was changed: its digest is {found:.12}, and {stored or 'none':.12} is stored."


def _baselines(search: Records, selection: Selection | None) -> Iterator[Entry]:
    found, folder = search.baselines, search.folder
    if selection and selection.baselines:
        yield str(folder.baselines), selection.baselines, found.digest if found else None
    if found:
        yield str(folder.whitened), found.whitening_sha256, file_digest(folder.whitened)


def _studies(search: Records, selection: Selection, records: Sequence[ScoredOpening]) -> Iterator[Entry]:
    """Yield the studies of the choice, and the final trainings of this search in each opening."""
    scored = chain.from_iterable(record.studies.items() for record in records)
    own = [(name, digest) for name, digest in scored if name.startswith(f"{search.name}/")]
    for name, digest in (*selection.studies.items(), *own):
        trials = search.studies.trials_of(name)
        yield f"The study {name}", digest, study_digest(trials) if trials else None


def _models(search: Records, record: ScoredOpening) -> Iterator[Entry]:
    for model in record.scores:
        study, _, number = model.per_image.removesuffix(".npz").rpartition("-")
        path = as_path(checkpoint_of(search, study, search.trial_of(study, int(number))))
        yield f"The scored model {path}", model.model_sha256, file_digest(path)


def _files(folder: RunFolder, record: ScoredOpening) -> Iterator[Entry]:
    place, there = folder.path / "test" / record.id, {*(folder.path / "test").rglob("*")}
    for path, digest in ((place / name, digest) for name, digest in record.files.items()):
        yield f"The file {path}", digest, file_digest(path if path in there else None)  # a name may lead elsewhere


def check_ledger(search: Records, selection: Selection) -> Iterator[Check]:
    """Check the lines of the ledger, and that it and ``test.json`` have the same openings of this selection."""
    ledger, records, path = search.ledger, search.openings, search.folder.openings
    openings = ledger.of_selection(selection.digest)
    if records and not path.exists():
        ask = f"it lies beside the folder of the search: ask who sent {search.name} for it and {path.stem}.images/"
        yield Check("the ledger", f"The ledger {path} is missing; {ask}.")
    own, *users = [
        (f"{path}: {counted(count, 'line')} that the other ledger has", count)
        for path, count in ledger.lacking([opening.id for opening in openings]).items()
    ]
    lost = [f"{own[0]} cannot be found there; `holdout run` with the search's file copies it."] if own[1] else []
    yield check("the ledger: no line was changed, removed or moved", chain(ledger.broken_links(), lost))
    for text, count in users:  # the user may have used another machine meanwhile
        if count:
            yield Check(text, is_there=False)
    if not openings and not records:
        yield Check("the scores (the test is sealed)", is_there=False)
        return
    scored = {
        opening.id: {**opening.entry, "test_digest": selection.test_digest, "digest": opening.scores[selection.digest]}
        for opening in openings
        if selection.digest in opening.scores
    }
    keys = next(iter(scored.values()), {}).keys()
    found = {entry.id: {key: value for key, value in entry.content().items() if key in keys} for entry in records}
    what = f"the ledger: {counted(len(records), 'opening')}, each with its scores"
    absent = (
        f"test.json openings: {search.folder.openings} lacks the scores of {name:.12}; ask for a copy."
        for name in found.keys() - scored.keys()
    )
    noted = chain.from_iterable(of.get("openings", ()) for of in search.counts.attributes.values())
    unknown = (f"study.journal does not note the opening {name:.12}." for name in found.keys() - {*noted})
    yield check(what, chain(absent, differing("test.json openings ", found, scored), unknown))
    for opening in openings:
        if opening.id not in scored:
            yield Check(f"the scores of the opening of {opening.time}", is_there=False)
