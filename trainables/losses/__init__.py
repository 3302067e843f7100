"""Table of losses: `LOSSES[name](num_classes=C, embedding_dim=D, **params)`.

A row holds everything known about a loss without importing torch. Its class takes paper, equation and defaults from the
row (:func:`trainables.losses.loss.declared`).

Papers cited by author: Psomas, Metric Learning: A Deep Dive (2020); Saeki et al., Multi Proxy Anchor Family Loss; Li et
al., Rethinking the Optimization of Average Precision; Lu et al., Sampling Wisely.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

from trainables.common.part_tables import PartRow, PartTable, is_own

if TYPE_CHECKING:
    from trainables.losses.loss import Loss


@dataclass(frozen=True, kw_only=True)
class LossRow(PartRow):
    """A loss's class, paper, equation, defaults and proxy learning rate.

    ``defaults`` are those of the constructor and of the search space (``spaces/losses.py`` gives ranges and sources).
    ``proxy_lr`` is None for a loss without proxies.
    """

    paper: str
    equation: str
    defaults: Mapping[str, bool | int | float | str | None] = field(default_factory=dict)
    proxy_lr: float | None = None


_CENTRES = {"proxies_per_class": 10, "margin": 0.1, "gamma": 0.1, "tau": 0.2}
_MPA_DEFAULTS: dict[str, float | str] = {**_CENTRES, "similarity": "softmax", "scale": 32.0}

_ROWS = {
    "contrastive": LossRow(
        path="trainables.losses.pairs:Contrastive",
        paper="Contrastive (Hadsell et al. 2006; Psomas, eq. 2.15)",
        equation="Σ_{i<j} -S_ij if same class, else [S_ij - margin]_+",
        defaults={"margin": 0.5},
    ),
    "triplet": LossRow(
        path="trainables.losses.pairs:Triplet",
        paper="Triplet (Schroff et al. 2015; Psomas, eq. 2.17-2.20)",
        equation="Σ_{(a,p,n) mined} [S_an - S_ap + margin]_+",
        defaults={"margin": 0.1, "mining": "semi_hard"},
    ),
    "lifted_structure": LossRow(
        path="trainables.losses.pairs:LiftedStructure",
        paper="Lifted structure (Oh Song et al. 2016; Psomas, eq. 2.21)",
        equation="Σ_i [1/α log Σ_{P_i} e^{α(margin-S)} + 1/β log Σ_{N_i} e^{βS}]_+",
        defaults={"margin": 0.5, "mining": "all", "pos_scale": 1.0, "neg_scale": 1.0},
    ),
    "npair": LossRow(
        path="trainables.losses.pairs:NPair",
        paper="N-pair (Sohn 2016; Psomas, eq. 2.22)",
        equation="mean_i log(1 + Σ_{P_i,N_i} e^{S_ik-S_ij}) + l2 mean_i ‖x_i‖²",
        defaults={"l2": 0.02},
    ),
    "margin": LossRow(
        path="trainables.losses.pairs:Margin",
        paper="Margin (Wu et al. 2017; Psomas, eq. 2.23)",
        equation="Σ [margin + I (D - beta)]_+, I = +1 same class, -1 different",
        defaults={"margin": 0.5, "beta": 1.2, "distance": "euclidean", "mining": "distance_weighted"},
    ),
    "multi_similarity": LossRow(
        path="trainables.losses.pairs:MultiSimilarity",
        paper="Multi-Similarity (Wang et al. 2019; Psomas, eq. 2.24)",
        equation="mean_i {1/α log[1 + Σ_{P_i} e^{-α(S-margin)}] + 1/β log[1 + Σ_{N_i} e^{β(S-margin)}]}",
        defaults={"margin": 0.5, "pos_scale": 2.0, "neg_scale": 50.0, "epsilon": 0.1},
    ),
    "softmax": LossRow(
        path="trainables.losses.proxies:Softmax",
        paper="Softmax (Psomas, eq. 2.26)",
        equation="Σ_i -log e^{scale S_iy} / Σ_c e^{scale S_ic}, S a cosine or w_c·x_i",
        defaults={"similarity": "cosine", "scale": 1.0},
        proxy_lr=1e-4,  # given in no paper: ArcFace's, whose classifier differs only in its margin
    ),
    "proxy_nca": LossRow(
        path="trainables.losses.proxies:ProxyNCA",
        paper="Proxy-NCA (Movshovitz-Attias et al. 2017; Psomas, eq. 2.27)",
        equation="Σ_i -log e^{scale S_iy} / Σ_{c≠y} e^{scale S_ic}",
        defaults={"scale": 1.0},
        proxy_lr=1e-5,  # Psomas, Table 4
    ),
    "arcface": LossRow(
        path="trainables.losses.proxies:ArcFace",
        paper="ArcFace (Deng et al. 2019; Psomas, eq. 2.29)",
        equation="Σ_i -log e^{scale cos(θ_y+margin)} / (e^{scale cos(θ_y+margin)} + Σ_{c≠y} e^{scale cos θ_c})",
        defaults={"margin": 28.6, "scale": 64.0},
        proxy_lr=1e-4,  # Psomas, Table 4
    ),
    "soft_triple": LossRow(
        path="trainables.losses.proxies:SoftTriple",
        paper="SoftTriple (Qian et al. 2019; Saeki et al., eq. 1-4)",
        equation="Σ_i -log e^{scale(S_iy-margin)} / (e^{scale(S_iy-margin)} + Σ_{c≠y} e^{scale S_ic}) + tau R",
        defaults={**_CENTRES, "scale": 20.0},
        proxy_lr=1e-4,  # Psomas, Table 4; Table 15 found 5e-5 best, with another scale, gamma, margin and tau
    ),
    "proxy_anchor": LossRow(
        path="trainables.losses.proxies:ProxyAnchor",
        paper="Proxy-Anchor (Kim et al. 2020; Psomas, eq. 2.31)",
        equation="mean_{W+} log(1 + Σ_{X+} e^{-scale(S-margin)}) + mean_W log(1 + Σ_{X-} e^{scale(S+margin)})",
        defaults={"margin": 0.1, "scale": 32.0},
        proxy_lr=1e-2,  # Saeki et al., section 4.2, and 100 × the network's in Proxy-Anchor's own code
    ),
    "mpa": LossRow(
        path="trainables.losses.proxies:MPA",
        paper="Multi Proxy Anchor (Saeki et al.), eq. 6-7",
        equation="mean_{C+} log(1+Σ_{X+} e^{-scale(S-margin)}) + mean_C log(1+Σ_{X-} e^{scale(S+margin)}) + tau R",
        defaults=_MPA_DEFAULTS,
        proxy_lr=1e-2,  # Saeki et al., section 4.2
    ),
    "mpa_dw": LossRow(
        path="trainables.losses.proxies:MPADW",
        paper="Multi Proxy Anchor (Saeki et al.), eq. 12-13",
        equation="mean_i [log(1 + e^{-scale(S_i-margin)}) + log(1 + Σ_{c≠c_i} e^{scale(S_ic+margin)})] + tau R",
        defaults=_MPA_DEFAULTS,
        proxy_lr=1e-2,  # as mpa
    ),
    "mpa_ap": LossRow(
        path="trainables.losses.proxies:MPAAP",
        paper="Multi Proxy Anchor (Saeki et al.), eq. 15-17",
        equation="mean_i log(1 + e^{scale(margin-S_i)} + Σ_{c≠c_i} e^{scale(S_ic+margin)}) + tau R",
        defaults=_MPA_DEFAULTS,
        proxy_lr=1e-2,  # as mpa
    ),
    "proxy_push": LossRow(
        path="trainables.losses.proxies:ProxyPush",
        paper="Proxy-Push (Psomas 2020, eq. 6.1-6.2)",
        equation="mean_{W+} log(1 + Σ_{X+} e^{-scale(S-margin)}) + mean_W log(1 + Σ_{w-} e^{scale(s(w,w-)+margin)})",
        defaults={"similarity": "proxy", "margin": 0.1, "scale": 32.0},
        proxy_lr=1e-2,  # given in no paper: 100 × the network's in the thesis's code, as for Proxy-Anchor
    ),
    "pnp": LossRow(
        path="trainables.losses.pairs:PNP",
        paper="PNP (Li et al.), eq. 2-13",
        equation="mean_queries mean_{i∈P} f(R_i), R_i = Σ_N σ((s_n-s_i)/temperature); Dq: f = 1 - (1+R)^-alpha",
        defaults={"variant": "Dq", "temperature": 0.01, "alpha": 4.0, "bound": 4.0},
    ),
    "smooth_ap": LossRow(
        path="trainables.losses.pairs:SmoothAP",
        paper="Smooth-AP (Brown et al. 2020; Li et al., eq. 3-4)",
        equation="mean_queries mean_{i∈P} 1 - (1+R(i,P)) / (1+R(i,P)+R(i,N)), R = Σ_j σ((s_j-s_i)/temperature)",
        defaults={"temperature": 0.01},
    ),
    "topk_precision": LossRow(
        path="trainables.losses.pairs:TopKPrecision",
        paper="top-k precision (Lu et al.), eq. 4-10",
        equation="Σ_queries Σ_{misplaced N} ŝ - Σ_{misplaced P} ŝ, ŝ = s + margin for negatives",
        defaults={"margin": 0.1, "k": 5},
    ),
    "angular": LossRow(
        path="trainables.losses.pairs:Angular",
        paper="Angular (Wang et al. 2017, eq. 7-8)",
        equation="mean_{a,p} log(1 + Σ_N e^{4 tan²(angle) (x_a+x_p)·x_n - 2(1+tan²(angle)) x_a·x_p})",
        defaults={"angle": 45.0, "mining": "all"},
    ),
}


class LossTable(PartTable["type[Loss]", LossRow]):
    """The table of losses, which adapts those of pytorch-metric-learning."""

    def __getitem__(self, name: str) -> "type[Loss]":
        """Return the loss ``name``, a row's name or an import path."""
        if name not in self._loaded and name.startswith(f"{LIBRARY}."):
            self._loaded[name] = import_module(f"{__name__}.library").library_loss(name)
        return super().__getitem__(name)


LIBRARY = "pytorch_metric_learning"

LOSSES = LossTable("loss", _ROWS, base="trainables.losses.loss:Loss")
"""Every loss by name; a user-defined one by its import path, ``LOSSES["mylab.losses:CircleLoss"]``."""


def loss_row(loss: str) -> LossRow:
    """Return the row of a loss, given by name or import path; a user-defined class holds it in attributes."""
    if loss in LOSSES:
        return LOSSES.rows[loss]
    own = LOSSES[loss]
    return LossRow(
        path=loss,
        paper=getattr(own, "paper", ""),
        equation=getattr(own, "equation", ""),
        proxy_lr=getattr(own, "proxy_lr", None),
    )


@dataclass(frozen=True, kw_only=True)
class LossPart:
    """One loss of a search: ``name`` labels it and its study; ``path`` is None for a row of ``LOSSES``."""

    name: str
    path: str | None = None

    @property
    def key(self) -> str:
        """Key for ``LOSSES[key]`` and ``TrialSpec.loss`` in any process: the row's name or the import path."""
        return self.path or self.name


def loss_part(loss: str) -> LossPart:
    """Return the part of a loss; one given by its import path is imported, and labelled by its name or class name."""
    return LossPart(name=LOSSES.plain_name(loss), path=loss) if is_own(loss) else LossPart(name=loss)
