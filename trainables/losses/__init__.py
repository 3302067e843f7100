"""Every loss by name: ``LOSSES[name](num_classes=C, embedding_dim=D, **hyperparameters)``."""

from trainables.losses.angular import Angular
from trainables.losses.arcface import ArcFace
from trainables.losses.base import Loss
from trainables.losses.contrastive import Contrastive
from trainables.losses.lifted_structure import LiftedStructure
from trainables.losses.margin import Margin
from trainables.losses.mpa import MPA
from trainables.losses.mpa_ap import MPAAP
from trainables.losses.mpa_dw import MPADW
from trainables.losses.multi_similarity import MultiSimilarity
from trainables.losses.npair import NPair
from trainables.losses.pnp import PNP
from trainables.losses.proxy_anchor import ProxyAnchor
from trainables.losses.proxy_nca import ProxyNCA
from trainables.losses.proxy_push import ProxyPush
from trainables.losses.smooth_ap import SmoothAP
from trainables.losses.soft_triple import SoftTriple
from trainables.losses.softmax import Softmax
from trainables.losses.topk_precision import TopKPrecision
from trainables.losses.triplet import Triplet

LOSSES: dict[str, type[Loss]] = {
    "contrastive": Contrastive,
    "triplet": Triplet,
    "lifted_structure": LiftedStructure,
    "npair": NPair,
    "margin": Margin,
    "multi_similarity": MultiSimilarity,
    "softmax": Softmax,
    "proxy_nca": ProxyNCA,
    "arcface": ArcFace,
    "soft_triple": SoftTriple,
    "proxy_anchor": ProxyAnchor,
    "mpa": MPA,
    "mpa_dw": MPADW,
    "mpa_ap": MPAAP,
    "proxy_push": ProxyPush,
    "pnp": PNP,
    "smooth_ap": SmoothAP,
    "topk_precision": TopKPrecision,
    "angular": Angular,
}

__all__ = ["LOSSES", "Loss"]
