"""A small vision transformer as a user-defined backbone, for images of 32 pixels."""

from torch import Tensor, nn
from torchvision.models import VisionTransformer

from trainables.models.library_networks import up_to_tokens


def transformer() -> VisionTransformer:
    return VisionTransformer(32, 16, 2, 2, 8, 16)


def tokens() -> nn.Module:
    """Build the transformer up to its tokens [B, 5, 8]."""
    return up_to_tokens(transformer())


class TinyTransformer(nn.Module):
    """The transformer with its class token as maps of one position [B, 8, 1, 1]."""

    features = 8
    tokens = staticmethod(tokens)

    def __init__(self) -> None:
        super().__init__()
        self.network = tokens()

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.network(images)[:, 0, :, None, None]
        return maps
