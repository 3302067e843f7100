"""InvalidInput in a search file that concern several of its sections."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from spaces.space import MODEL
from trainables.data.dataset import ItemDataset
from trainables.models import ModelConfig
from trainables.models.backbones import FEATURES
from trainables.models.config import BACKBONE
from trainables.spec import COSTS, EMBED_MS, SIZE_MB
from trainables.training.config import TrainingConfig

if TYPE_CHECKING:
    from search.config.search_config import SearchConfig


def mistakes_across(config: "SearchConfig") -> Iterator[str]:
    """Yield the mistakes in a file whose sections are valid by themselves."""
    if config.trainable is not None:
        yield from _of_trainable(config, config.trainable)
        return
    if isinstance(config.dataset.source, ItemDataset):
        yield (
            f"dataset.name is {config.dataset.name}, whose items are neither images nor embeddings; name a training of "
            "your own for them in trainable."
        )
    costs = [name for name in config.measured if name in COSTS]
    wishes = (config.space.get(MODEL), *(of_loss.get(MODEL) for of_loss in config.space.values()))
    freezes = [wish.get("freeze") for wish in wishes if isinstance(wish, Mapping)]
    frozen = config.model.is_frozen or any(entry == BACKBONE or BACKBONE in (entry or ()) for entry in freezes)
    if EMBED_MS in costs and frozen:
        key = "constraints" if EMBED_MS in config.search.constraints else "objectives"
        yield (
            f"search.{key}: {EMBED_MS} is the time of the whole network, and the features of a frozen backbone are "
            f"computed once; leave model.freeze out, or use {SIZE_MB}."
        )
    if config.training.views > 1 and not config.model.is_frozen:
        yield (
            f"training.views is {config.training.views}, and model.freeze is not backbone: only a frozen backbone's "
            "features have fixed views; set views to 1, or freeze to backbone."
        )


OWN_USES = ("epochs",)
"""The keys of the section ``training`` that concern a user-defined training."""


def _of_trainable(config: "SearchConfig", path: str) -> Iterator[str]:
    """Yield the settings of a search with the user-defined training ``path`` that are for trainings with a loss."""
    if [loss.path for loss in config.losses] != [path]:
        yield f"losses: a search trains losses or a trainable, and trainable is {path}; leave losses out."
        return
    settings, default = asdict(config.training), asdict(TrainingConfig())
    changed = [f"training.{key}" for key in default if key not in OWN_USES and settings[key] != default[key]]
    features = config.dataset.source.features()
    network = asdict(ModelConfig() if features is None else ModelConfig(backbone=f"{FEATURES}:{features}"))
    changed += [f"model.{key}" for key, value in asdict(config.model).items() if value != network[key]]
    changed += ["training_by_loss"] if config.training_by_loss else []
    changed += [f"space.{section}" for section in ("training", "model") if section in config.space]
    for key in changed:
        yield f"{key}: a setting of trainings with a loss, and trainable is {path}; remove it."
