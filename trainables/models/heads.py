"""Heads: layers from pooled features to embeddings, and the initialisation of the last one.

Shapes: B images, F features, D embedding dimensions.
"""

from itertools import pairwise

from torch import Tensor, nn

from trainables.models.config import HEAD_INIT, ModelConfig


def make_head(config: ModelConfig, features: int) -> nn.Sequential:
    """Build the layers from ``features`` F pooled features [B, F] to embeddings [B, D], with their initial weights."""
    layers: list[nn.Module] = []
    if config.layer_norm:
        layers.append(nn.LayerNorm(features, elementwise_affine=False))
    width = features
    if config.head == "mlp":
        for inputs, outputs in pairwise((features, *config.head_widths)):
            layers += [nn.Linear(inputs, outputs), nn.LayerNorm(outputs), nn.ReLU(), nn.Dropout(config.head_dropout)]
            width = outputs
    elif config.head == "residual":
        layers.append(ResidualAdapter(features, config.head_widths, config.head_dropout))
    if config.head != "none" and not (config.head == "residual" and config.embedding_dim is None):
        projection = nn.Linear(width, features if config.embedding_dim is None else config.embedding_dim)
        HEAD_INIT[config.head_init](projection)
        layers.append(projection)
    return nn.Sequential(*layers)


class ResidualAdapter(nn.Module):
    """A residual bottleneck (Houlsby et al., ICML 2019): x + W₂ ReLU(W₁ norm(x)), [B, F] → [B, F].

    The last weights are zero at the start, so that training begins with the features as they are. ``widths`` are the
    hidden layers.
    """

    def __init__(self, features: int, widths: tuple[int, ...], dropout: float) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.LayerNorm(features)]
        for inputs, outputs in pairwise((features, *widths)):
            layers += [nn.Linear(inputs, outputs), nn.ReLU(), nn.Dropout(dropout)]
        last = nn.Linear(widths[-1], features)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.bottleneck = nn.Sequential(*layers, last)

    def forward(self, features_BF: Tensor) -> Tensor:
        changed_BF: Tensor = features_BF + self.bottleneck(features_BF)
        return changed_BF


# Initialisation of the last layer, from F to D. The length of an embedding has no effect on most losses, but a
# step of Adam has the same size for any weights, so it turns a layer of small ones further.


def kaiming_normal_head(layer: nn.Linear) -> None:
    """Draw the weights from N(0, 2/D), with zero biases, as in Proxy-Anchor's code (Kim et al., CVPR 2020)."""
    nn.init.kaiming_normal_(layer.weight, mode="fan_out")
    nn.init.zeros_(layer.bias)


def linear_head(layer: nn.Linear) -> None:
    """Keep torch's default, weights and biases uniform in ±1/√F, as in PNP's code (Li et al., AAAI 2022)."""


def truncated_normal_head(layer: nn.Linear) -> None:
    """Draw the weights from N(0, 0.001²) within ±0.002, as in the code of Sampling Wisely (Lu et al., ICCV 2019).

    The biases keep torch's default, uniform in ±1/√F.
    """
    nn.init.trunc_normal_(layer.weight, std=1e-3, a=-2e-3, b=2e-3)
