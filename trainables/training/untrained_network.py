"""Scores of networks that are not trained: the features of pretrained weights as they are, and whitened.

Shapes: N images, F features, D dimensions of the whitened features.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from statistics import fmean

import numpy as np
import torch
from torch import Tensor

from trainables.common.errors import InvalidInput
from trainables.common.process import contained
from trainables.data import Frame
from trainables.data.dataset import Dataset
from trainables.data.images import fitted, inspect
from trainables.data.loading import ImagesInMemory
from trainables.data.store.build import read_item
from trainables.inference.model_files import frozen_backbone, tensors_bytes
from trainables.metrics.evaluation import evaluate
from trainables.metrics.gallery import full_float32
from trainables.models.backbones import backbone
from trainables.models.config import ModelConfig
from trainables.training.epoch_training import Validation, embedder_spec
from trainables.training.inputs import Inputs, described_backbone, features_of, of_backbone
from trainables.training.spec import UntrainedSpec, ValidatedUntrained, defined

WEIGHT, BIAS = "head.0.weight", "head.0.bias"
"""The names of the whitening's tensors in an :class:`EmbeddingModel` with the head ``linear``."""


@contained()
def validate(spec: UntrainedSpec) -> ValidatedUntrained:
    """Score the initial network on the validation classes of ``spec``; values are means over folds."""
    inputs = Inputs(spec.images, spec.model, spec.training, torch.device("cuda" if spec.gpu else "cpu"))
    features_NF = inputs.features()
    if not torch.isfinite(features_NF).all():
        raise InvalidInput(
            f"The features of {spec.model.backbone} with the weights {spec.model.weights!r} are not finite before any "
            "training; give other weights."
        )
    validated = _validations(spec, spec.divisions, inputs, features_NF)
    plain, white = zip(*((scored.scores(raw), scored.scores(white)) for scored, raw, white in validated), strict=True)
    classes: dict[str, dict[str, float]] = {"untrained": {}, "whitened": {}}
    for scored, *both in _validations(spec, spec.confirming, inputs, features_NF):
        for of_network, embeddings in zip(classes.values(), both, strict=True):
            of_network |= scored.by_class(embeddings, spec.objective)
    layer = whitening(features_NF[inputs.view(spec.fitted_on).rows_N], spec.model.embedding_dim)
    backbone_alone, dimensions = of_backbone(spec.model), len(layer[BIAS])
    network, loaded = described_backbone(backbone_alone)
    model = replace(backbone_alone, weights=None, head="linear", embedding_dim=dimensions)
    origin = {
        "loss": None,
        "initial_weights": spec.model.weights,
        "classes": {"train": len(spec.fitted_on), "validation": 0},
        **frozen_backbone(network),
    }
    return ValidatedUntrained(
        network=network,
        loaded=loaded,
        dimensions=dimensions,
        validation={"untrained": _means(plain), "whitened": _means(white)},
        classes=classes,
        whitening=tensors_bytes(layer, embedder_spec(spec, model, origin).to_json()),
    )


def _validations(
    spec: UntrainedSpec,
    divisions: Sequence[tuple[tuple[str, ...], tuple[str, ...]]],
    inputs: Inputs,
    features_NF: Tensor,
) -> Iterator[tuple[Validation, Tensor, Tensor]]:
    """Yield for each division its validation, with the features, plain and whitened, of its items."""
    for train, validation in divisions:
        train_view, view = inputs.view(train), inputs.view(validation)
        layer = whitening(features_NF[train_view.rows_N], spec.model.embedding_dim)
        scored = Validation.of(spec, view, train_view)
        rows_M = torch.cat([part.rows_N for part in scored.views])
        yield scored, features_NF[rows_M], whitened(features_NF, layer)[rows_M]


def _means(by_fold: Sequence[dict[str, float]]) -> dict[str, float | None]:
    return defined({name: fmean(values[name] for values in by_fold) for name in by_fold[0]})


# Variants.

SAMPLED, PER_CLASS = 200, 8
READ_S = 30.0  # after which no further image is read, such as from a slow network


@cache  # the searches of a campaign share their networks
def scores_of_variants(
    model: ModelConfig, frame: Frame, dataset: Dataset, short_side: int, classes: tuple[tuple[str, ...], ...]
) -> dict[str, float]:
    """Return MAP@R of the features of ``model`` and of each variant that its weights fit, by backbone.

    Scored are at most :data:`SAMPLED` images, the first :data:`PER_CLASS` of each of the ``classes`` of image keys.
    Those that cannot be read are left out, since the search refuses them when it decodes all.
    """
    labels = {key: label for label, keys in enumerate(classes[: SAMPLED // PER_CLASS]) for key in keys[:PER_CLASS]}
    read: dict[str, np.ndarray] = {}

    def read_one(key: str) -> None:
        read[key] = fitted(read_item(dataset, key), short_side)

    inspect(read_one, [*labels], seconds=READ_S)
    keys = [key for key in labels if key in read]
    if not keys:
        return {}
    images, labels_N = ImagesInMemory([read[key] for key in keys]), torch.tensor([labels[key] for key in keys])
    found = {}
    for name in (model.backbone, *backbone(model.backbone).variants):
        network = of_backbone(replace(model, backbone=name))
        with suppress(InvalidInput):  # the weights do not fit this variant, or the images have no pairs
            features_NF = features_of(images, network, frame, torch.device("cpu"))
            found[name] = evaluate(features_NF, labels_N, ["map_at_r"])["map_at_r"]
    return found


def shown_variants(scores: Mapping[str, float]) -> str:
    """Return the MAP@R of untrained networks on training images as a phrase."""
    shown = " and ".join(f"{100 * value:.1f} in {name}" for name, value in scores.items())
    return f"untrained, they score MAP@R {shown} on images of training classes"


# Whitening.


def whitening(features_NF: Tensor, most: int | None) -> dict[str, Tensor]:
    """Fit a principal component analysis with whitening to features, as the linear layer x ↦ Λ^(−1/2) Vᵀ (x − μ).

    V holds the eigenvectors of the covariance with the ``most`` largest eigenvalues Λ (None: all), computed in float64.
    Directions whose variance is within the rounding errors of float32 features are left out.

    Returns:
        the weight [D, F] and the bias [D] of the layer, by their names in the network.

    Raises:
        InvalidInput: the features do not vary.
    """
    exact_NF = features_NF.double()
    mean_F = exact_NF.mean(0)
    centred_NF = exact_NF - mean_F
    values_F, vectors_FF = torch.linalg.eigh(centred_NF.T @ centred_NF / max(len(centred_NF) - 1, 1))
    floor = values_F[-1] * (features_NF.shape[1] * torch.finfo(torch.float32).eps) ** 2
    rank = min(int((values_F > floor).sum()), len(features_NF) - 1)
    if rank < 1 or values_F[-1] <= 0:
        raise InvalidInput(
            "The features of the initial network are equal for all training items, so none can be ranked; give other "
            "model.weights."
        )
    size = rank if most is None else min(most, rank)
    scale_D, vectors_FD = values_F[-size:].flip(0).sqrt(), vectors_FF[:, -size:].flip(1)
    weight_DF = (vectors_FD / scale_D).T
    return {WEIGHT: weight_DF.float().contiguous(), BIAS: (-(weight_DF @ mean_F)).float()}


def whitened(features_NF: Tensor, layer: dict[str, Tensor]) -> Tensor:
    """Return whitened features [N, D] by the tensors of :func:`whitening`."""
    with full_float32():
        return torch.nn.functional.linear(
            features_NF, layer[WEIGHT].to(features_NF.device), layer[BIAS].to(features_NF.device)
        )
