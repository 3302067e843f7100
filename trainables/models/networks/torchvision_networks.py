"""torchvision's classification networks without what follows their last maps, under torchvision's parameter names."""

from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torchvision import models
from torchvision.models.feature_extraction import create_feature_extractor, get_graph_node_names

from trainables.mistakes import Mistakes, suggestion
from trainables.models.backbone import Backbone, published

# What comes after the last maps has one of these names in every family: pooling, or the classifier of those that
# have none at the top (SqueezeNet, MaxViT, vision transformers).
HEADS = ("avgpool", "adaptive_avg_pool2d", "mean", "classifier", "heads")

# Trained on images scaled to -1 … 1; torchvision's own networks turn ImageNet's mean and scale into that on the way in.
INCEPTIONS = ("googlenet", "inception_v3")
OUTPUT = "maps"


def network(name: str) -> nn.Module:
    """The whole network with random weights, and without the auxiliary classifiers that Inceptions trained with."""
    options: dict[str, Any] = {"aux_logits": False, "init_weights": True} if name in INCEPTIONS else {}
    whole: nn.Module = models.get_model(name, weights=None, **options)
    return whole


def _before_the_head(nodes: list[str]) -> str:
    """The last node whose output is still maps, or the class token of a vision transformer."""
    return next(node for node, follower in pairwise(nodes) if follower.split(".")[0] in HEADS)


def _as_maps(module: nn.Module, images: tuple[Tensor], outputs: dict[str, Tensor]) -> Tensor:
    """The extractor's output; a vision transformer's vector [B, F] is a map of one position, [B, F, 1, 1]."""
    maps = outputs[OUTPUT]
    return maps[:, :, None, None] if maps.ndim == 2 else maps


def trunk(name: str) -> nn.Module:
    """The network ``name`` up to its last maps [B, F, h, w]."""
    whole = network(name)
    train, evaluation = (_before_the_head(nodes) for nodes in get_graph_node_names(whole))
    extractor = create_feature_extractor(
        whole, train_return_nodes={train: OUTPUT}, eval_return_nodes={evaluation: OUTPUT}
    )
    extractor.register_forward_hook(_as_maps)
    return extractor


def torchvision_backbone(name: str) -> Backbone:
    """What is known of torchvision's network ``name``; its number of features is found by a run without values.

    Raises:
        Mistakes: it is none of the classification networks.
    """
    known = models.list_models(module=models)
    if name not in known:
        reason = (
            "which classifies no images and so has no one last map; use a classification network"
            if name in models.list_models()
            else f"which torchvision does not have{suggestion(name, known)}"
        )
        raise Mistakes(f"model.backbone is 'torchvision:{name}', {reason}.")
    weights = models.get_model_weights(name).DEFAULT
    transforms = weights.transforms()
    # A model's weights depend on the trial's seed, and not on what was asked before.
    with torch.random.fork_rng(devices=[]):
        extractor = trunk(name).eval().to("meta")
    maps = extractor(torch.empty(1, 3, *2 * transforms.crop_size, device="meta"))
    middle = name in INCEPTIONS
    return Backbone(
        summary=f"{name}, from torchvision",
        build=partial(trunk, name),
        features=maps.shape[1],
        mean=(0.5, 0.5, 0.5) if middle else tuple(transforms.mean),
        scale=(0.5, 0.5, 0.5) if middle else tuple(transforms.std),
        imagenet=published(weights.url),
    )
