"""The chosen model of each loss as a folder, ``models/<loss>``, that needs nothing of its search any more."""

from dataclasses import dataclass, replace
from pathlib import Path

from search.plan.stored import StoredSearch
from search.plan.trainings import best_checkpoint
from search.report.comparison import compare
from search.report.models.card import model_card
from search.report.results.comparison import Comparison
from search.report.results.scored_openings import ScoredModel, scored_openings
from search.report.results.summary import stored_summary
from search.selection.exported import exported_trial
from search.selection.selection import Selection
from search.study.names import Stage, short_study_name
from trainables.files.whole import as_path
from trainables.inference.embedder_spec import EmbedderSpec
from trainables.inference.model_folder import DESCRIPTION, write_model
from trainables.inference.tensors_file import network_file
from trainables.mistakes import Mistakes


@dataclass(frozen=True, kw_only=True)
class ChosenModel:
    """The chosen model of ``loss``: ``weights`` is a file's content, ``scored`` its own scores on the test classes."""

    loss: str
    selection: Selection
    weights: bytes
    spec: EmbedderSpec
    scored: ScoredModel | None

    def card(self, comparison: Comparison, programs: str = "") -> str:
        """Its card, from the comparison of its search alone and a table of further files, in Markdown."""
        return model_card(comparison, self.selection, self.loss, self.spec, self.scored, programs)

    def write(self, folder: Path, comparison: Comparison) -> None:
        """Write it into ``folder``, which may be there."""
        write_model(folder, self.weights, self.spec, self.card(comparison))


def chosen_model(stored: StoredSearch, selection: Selection, loss: str) -> ChosenModel | None:
    """The chosen model of ``loss``; None where none is trained for the test.

    Raises:
        Mistakes: its checkpoint is gone.
    """
    trial = exported_trial(stored.trials(loss, Stage.TEST), selection.chosen[loss])
    if trial is None:
        return None
    study = short_study_name(loss, Stage.TEST)
    fold = trial.user_attrs.get("fold")
    directory = stored.trial_directory(study, trial.number) + (f"/fold-{fold}" if fold else "")
    address = best_checkpoint(trial, directory)
    weights, description = network_file(as_path(address))
    found = EmbedderSpec.from_json(description, address)
    return ChosenModel(
        loss=loss,
        selection=selection,
        weights=weights,
        spec=replace(found, origin={**found.origin, "dataset": _images(stored), "selection": selection.digest}),
        scored=_scored(stored, f"{study}-{trial.number}.npz"),
    )


def write_model_folders(stored: StoredSearch, comparison: Comparison) -> None:
    """Write the chosen model of every loss of a search whose models for the test are trained.

    ``comparison`` is that of the search alone.

    Raises:
        Mistakes: nothing is chosen yet, or a checkpoint is gone.
    """
    selection = Selection.load(stored.folder.selection)
    for loss in selection.chosen:
        if model := chosen_model(stored, selection, loss):
            model.write(stored.folder.model(loss), comparison)


def model_to_hand_out(stored: StoredSearch, loss: str | None) -> ChosenModel:
    """The chosen model of ``loss``; without one, of the loss with the highest confirmed mean on the validation classes.

    Raises:
        Mistakes: the search has no such loss, or no model of it that was trained for the test.
    """
    if loss is not None:
        stored.trials_of(loss)
    selection = Selection.load(stored.folder.selection)
    name = loss or _best(selection)
    model = chosen_model(stored, selection, name) if name in selection.chosen else None
    if model is None:
        raise Mistakes(
            f"{stored.name} has no model of {name} that was trained for the test; `holdout run` with the search's file "
            "trains it once the choice is made. Any checkpoint of the search can be loaded by the path of its file."
        )
    return model


def model_folder(stored: StoredSearch, loss: str | None) -> Path:
    """The folder of :func:`model_to_hand_out`, which is written where it is not there.

    Raises:
        Mistakes: as there.
    """
    folder = stored.folder.model(loss or _best(Selection.load(stored.folder.selection)))
    if not (folder / DESCRIPTION).is_file():  # which is written last
        model_to_hand_out(stored, loss).write(folder, comparison_of(stored))
    return folder


def _best(selection: Selection) -> str:
    """The loss with the highest confirmed mean on the validation classes."""
    return max(selection.chosen, key=lambda loss: selection.chosen[loss].mean)


def comparison_of(stored: StoredSearch) -> Comparison:
    """The comparison of a search alone.

    Raises:
        Mistakes: it has no result yet.
    """
    return compare([stored.folder], [stored_summary(stored.folder)])


def _images(stored: StoredSearch) -> str:
    """The data set in words: of images of one's own, the name of their folder."""
    dataset = stored.config["dataset"]
    name: str = dataset["name"]
    return f"the image folder {Path(dataset['root']).name}" if name == "folder" else name


def _scored(stored: StoredSearch, per_image: str) -> ScoredModel | None:
    """The model's own scores in the newest opening."""
    openings = scored_openings(stored.folder.test)
    return next((model for model in openings[-1].scores if model.per_image == per_image), None) if openings else None
