"""The chosen models as folders, with their model cards."""

from dataclasses import dataclass, replace
from pathlib import Path

import yaml
from optuna.trial import FrozenTrial

from search import __version__
from search.records import Selection, exported_trial, frozen_baselines
from search.records.plan import best_checkpoint
from search.records.records import Records
from search.results.comparison import Comparison, comparison_of
from search.results.rows import parameters, sentence
from search.show.comparison_tables import baselines_sentences, headline_losses, headline_sentences
from search.stages import BASELINES, UNTRAINED, Stage, short_study_name
from search.text_table import rows_as_markdown
from trainables.common.errors import InvalidInput
from trainables.common.files import as_path
from trainables.inference.model_files import (
    DESCRIPTION,
    FROZEN,
    EmbedderSpec,
    TrainableSpec,
    model_spec,
    network_file,
    tensors_bytes,
    write_model,
)
from trainables.models.backbones import backbone, on_features


@dataclass(frozen=True, kw_only=True)
class ChosenModel:
    """The chosen model of ``loss``, with the content of its weights file."""

    loss: str
    selection: Selection
    weights: bytes
    spec: EmbedderSpec | TrainableSpec

    def card(self, comparison: Comparison, programs: str = "") -> str:
        """Return its card in Markdown, from the comparison of its search alone and a table of other files.

        Its scores are the table and the sentences that a search prints at its end.
        """
        from jinja2 import StrictUndefined, Template

        loss, spec, (summary,) = self.loss, self.spec, comparison.searches
        features, of_images = None, isinstance(spec, EmbedderSpec)
        if isinstance(spec, EmbedderSpec) and on_features(spec.model.backbone):
            features, of_images = backbone(spec.model.backbone).features, False
        head = {  # of the Hugging Face Hub's model cards, so that the card can be published unchanged
            "library_name": "holdout",
            "pipeline_tag": "image-feature-extraction" if of_images else "feature-extraction",
            "tags": ["metric-learning", *(["image-retrieval"] if of_images else []), loss],
        }
        sentences = map(sentence, (*headline_sentences(comparison), *baselines_sentences(comparison)))
        chosen, entry = self.selection.chosen.get(loss), summary.losses.get(loss) or summary.baselines[loss]
        text = (Path(__file__).parent / "assets" / "card.md").read_text("utf-8")
        # not HTML, and names that users give were validated before
        return Template(text, undefined=StrictUndefined, keep_trailing_newline=True).render(
            head=yaml.safe_dump(head, sort_keys=False, allow_unicode=True),
            features=features,
            items="images" if of_images else "items",
            own=isinstance(spec, TrainableSpec),
            baseline=loss in BASELINES,
            comparison=comparison,
            selection=self.selection,
            loss=loss,
            spec=spec,
            version=__version__,
            parameters=parameters(chosen.params if chosen else {}) or "without hyperparameters",
            programs=programs,
            scores="\n\n".join((rows_as_markdown(headline_losses(comparison)), *sentences)) if entry.test else "",
        )

    def write(self, folder: Path, comparison: Comparison) -> None:
        write_model(folder, self.weights, self.spec, self.card(comparison))


def chosen_model(search: Records, selection: Selection, loss: str) -> ChosenModel | None:
    """Load the chosen model of ``loss``, or a network without training; None if no training for the test finished.

    Raises:
        InvalidInput: its checkpoint is missing, or the weights that the search began with.
    """
    folder = search.folder
    if loss in BASELINES:
        if frozen_baselines(folder.baselines, folder.whitened, selection.baselines) is None:
            return None
        address = str(folder.whitened)
    else:
        trial = exported_trial(search.trials(loss, Stage.TEST), selection.chosen[loss])
        if trial is None:
            return None
        address = checkpoint_of(search, short_study_name(loss, Stage.TEST), trial)
    weights, description = network_file(as_path(address))
    spec = model_spec(description, address)
    if isinstance(spec, EmbedderSpec) and loss == UNTRAINED:  # without its head, which is the whitening
        spec, weights = replace(spec, model=replace(spec.model, head="none", embedding_dim=None)), tensors_bytes({})
    if isinstance(spec, EmbedderSpec) and FROZEN in spec.origin:  # its file has what is behind the backbone alone
        from safetensors.torch import load

        from trainables.training.inputs import whole_network

        model = replace(spec.model, weights=spec.origin["initial_weights"])
        weights = tensors_bytes(whole_network(load(weights), model, spec.origin[FROZEN]))
    dataset = search.content["dataset"]
    images = f"the image folder {Path(dataset['root']).name}" if dataset["name"] == "folder" else str(dataset["name"])
    origin = {**spec.origin, "dataset": images, "selection": selection.digest}
    return ChosenModel(loss=loss, selection=selection, weights=weights, spec=replace(spec, origin=origin))


def checkpoint_of(search: Records, study: str, trial: FrozenTrial) -> str:
    """Return the path or URL of the best model of a final training, as :func:`best_checkpoint` does."""
    fold = trial.user_attrs.get("fold")
    return best_checkpoint(trial, search.trial_directory(study, trial.number) + (f"/fold-{fold}" if fold else ""))


def write_model_folders(search: Records) -> None:
    """Write the chosen model of each loss and the recommended one."""
    selection = search.frozen_selection
    for loss in selection.models:
        if model := chosen_model(search, selection, loss):
            model.write(search.folder.model(loss), comparison_of(search))


def model_to_hand_out(search: Records, loss: str | None) -> ChosenModel:
    """Load the chosen model of ``loss``, or ``untrained`` or ``whitened``; by default, the recommended model."""
    if loss is not None and loss not in BASELINES:
        search.trials_of(loss)
    selection = search.frozen_selection
    name = loss or selection.recommended.loss
    model = chosen_model(search, selection, name) if name in (*selection.chosen, *BASELINES) else None
    if model is None:
        raise InvalidInput(
            f"{search.name} has no model of {name} that was trained for the test; `holdout run` with the search's file "
            "trains it after the choice. Any checkpoint of the search can be loaded by the path of its file."
        )
    return model


def model_folder(search: Records, loss: str | None) -> Path:
    """Return the folder of the model of :func:`model_to_hand_out`; write it if it is missing."""
    folder = search.folder.model(loss or search.frozen_selection.recommended.loss)
    if not (folder / DESCRIPTION).is_file():  # this file is written last
        model_to_hand_out(search, loss).write(folder, comparison_of(search))
    return folder
