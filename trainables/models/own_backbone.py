"""A network of one's own, by its import path."""

from typing import Any

from trainables.mistakes import Mistakes
from trainables.models.backbone import Backbone
from trainables.parts import load_part, plain_name

AS_THEY_ARE = {"mean": (0.0, 0.0, 0.0), "scale": (1.0, 1.0, 1.0)}  # images stay in 0 … 1


def own_backbone(path: str) -> Backbone:
    """What the network at ``path`` says of itself: a :class:`Backbone`, or a class or function that builds a module.

    The latter has an attribute ``features``, the channels of its maps, and may have ``mean``, ``scale`` and ``bgr``;
    without them its images stay in 0 … 1.

    Raises:
        Mistakes: it is not there, cannot be called, or does not say its features.
    """
    part: Any = load_part(path, kind="backbone")
    if isinstance(part, Backbone):
        return part
    features = getattr(part, "features", None)
    if not callable(part) or type(features) is not int or features < 1:
        raise Mistakes(
            f"The backbone {path!r} must be a class or function that builds a module, with an attribute features, the "
            f"number of its channels, such as `features = 128`; it is {part!r:.100} and features is {features!r}."
        )
    mean, scale = (tuple(getattr(part, name, default)) for name, default in AS_THEY_ARE.items())
    summary = (part.__doc__ or plain_name(part)).splitlines()[0]
    return Backbone(
        summary=summary, build=part, features=features, mean=mean, scale=scale, bgr=getattr(part, "bgr", False)
    )
