"""Every loss by name: `LOSSES[name](num_classes=C, embedding_dim=D, **params)`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainables.parts import PartRow, PartTable, is_own, late_import

if TYPE_CHECKING:
    from trainables.losses.base import Loss


# What is known of a loss without importing it.


@dataclass(frozen=True, kw_only=True)
class LossRow(PartRow):
    """A loss's class, its paper and equation, and the learning rate of its proxies (None where it has none)."""

    paper: str
    equation: str
    proxy_lr: float | None = None


# Every loss by name: ``LOSSES[name](num_classes=C, embedding_dim=D, **hyperparameters)``.
#
# A loss of one's own goes by its import path, ``LOSSES["mylab.losses:CircleLoss"]``.

_ROWS = {
    "contrastive": LossRow(
        path="trainables.losses.pairs:Contrastive",
        paper="Contrastive (Hadsell et al. 2006; Psomas, eq. 2.15)",
        equation="Σ_{i<j} -S_ij if same class, else [S_ij - margin]_+",
    ),
    "triplet": LossRow(
        path="trainables.losses.pairs:Triplet",
        paper="Triplet (Schroff et al. 2015; Psomas, eq. 2.17-2.20)",
        equation="Σ_{(a,p,n) mined} [S_an - S_ap + margin]_+",
    ),
    "lifted_structure": LossRow(
        path="trainables.losses.pairs:LiftedStructure",
        paper="Lifted structure (Oh Song et al. 2016; Psomas, eq. 2.21)",
        equation="Σ_i [log Σ_{P_i} e^{margin-S} + log Σ_{N_i} e^S]_+",
    ),
    "npair": LossRow(
        path="trainables.losses.pairs:NPair",
        paper="N-pair (Sohn 2016; Psomas, eq. 2.22)",
        equation="mean_i log(1 + Σ_{P_i,N_i} e^{S_ik-S_ij}) + l2 mean_i ‖x_i‖²",
    ),
    "margin": LossRow(
        path="trainables.losses.pairs:Margin",
        paper="Margin (Wu et al. 2017; Psomas, eq. 2.23)",
        equation="Σ [margin + I (D - beta)]_+, I = +1 same class, -1 different",
    ),
    "multi_similarity": LossRow(
        path="trainables.losses.pairs:MultiSimilarity",
        paper="Multi-Similarity (Wang et al. 2019; Psomas, eq. 2.24)",
        equation="mean_i {1/α log[1 + Σ_{P_i} e^{-α(S-margin)}] + 1/β log[1 + Σ_{N_i} e^{β(S-margin)}]}",
    ),
    "softmax": LossRow(
        path="trainables.losses.softmax:Softmax",
        paper="Softmax (Psomas, eq. 2.26)",
        equation="Σ_i -log e^{scale S_iy} / Σ_c e^{scale S_ic}, S a cosine or w_c·x_i",
        proxy_lr=1e-4,  # no paper has one: ArcFace's, whose classifier differs in its margin only
    ),
    "proxy_nca": LossRow(
        path="trainables.losses.proxies:ProxyNCA",
        paper="Proxy-NCA (Movshovitz-Attias et al. 2017; Psomas, eq. 2.27)",
        equation="Σ_i -log e^{S_iy} / Σ_{c≠y} e^{S_ic}",
        proxy_lr=1e-5,  # Psomas, Table 4
    ),
    "arcface": LossRow(
        path="trainables.losses.softmax:ArcFace",
        paper="ArcFace (Deng et al. 2019; Psomas, eq. 2.29)",
        equation="Σ_i -log e^{scale cos(θ_y+margin)} / (e^{scale cos(θ_y+margin)} + Σ_{c≠y} e^{scale cos θ_c})",
        proxy_lr=1e-4,  # Psomas, Table 4
    ),
    "soft_triple": LossRow(
        path="trainables.losses.softmax:SoftTriple",
        paper="SoftTriple (Qian et al. 2019; Saeki et al., eq. 1-4)",
        equation="Σ_i -log e^{scale(S_iy-margin)} / (e^{scale(S_iy-margin)} + Σ_{c≠y} e^{scale S_ic}) + tau R",
        proxy_lr=1e-4,  # Psomas, Table 4; Table 15 found 5e-5 best, beside another scale, gamma, margin and tau
    ),
    "proxy_anchor": LossRow(
        path="trainables.losses.proxies:ProxyAnchor",
        paper="Proxy-Anchor (Kim et al. 2020; Psomas, eq. 2.31)",
        equation="mean_{W+} log(1 + Σ_{X+} e^{-scale(S-margin)}) + mean_W log(1 + Σ_{X-} e^{scale(S+margin)})",
        proxy_lr=1e-2,  # Saeki et al., section 4.2, and 100 × the network's in Proxy-Anchor's own code
    ),
    "mpa": LossRow(
        path="trainables.losses.mpa:MPA",
        paper="Multi Proxy Anchor (Saeki et al.), eq. 6-7",
        equation="mean_{C+} log(1+Σ_{X+} e^{-scale(S-margin)}) + mean_C log(1+Σ_{X-} e^{scale(S+margin)}) + tau R",
        proxy_lr=1e-2,  # Saeki et al., section 4.2
    ),
    "mpa_dw": LossRow(
        path="trainables.losses.mpa:MPADW",
        paper="Multi Proxy Anchor (Saeki et al.), eq. 12-13",
        equation="mean_i [log(1 + e^{-scale(S_i-margin)}) + log(1 + Σ_{c≠c_i} e^{scale(S_ic+margin)})] + tau R",
        proxy_lr=1e-2,  # as mpa
    ),
    "mpa_ap": LossRow(
        path="trainables.losses.mpa:MPAAP",
        paper="Multi Proxy Anchor (Saeki et al.), eq. 15-17",
        equation="mean_i log(1 + e^{scale(margin-S_i)} + Σ_{c≠c_i} e^{scale(S_ic+margin)}) + tau R",
        proxy_lr=1e-2,  # as mpa
    ),
    "proxy_push": LossRow(
        path="trainables.losses.proxies:ProxyPush",
        paper="the thesis's own loss (Psomas, eq. 6.1-6.2)",
        equation="mean_{W+} log(1 + Σ_{X+} e^{-scale(S-margin)}) + mean_W log(1 + Σ_{w-} e^{scale(s(w,w-)+margin)})",
        proxy_lr=1e-2,  # no paper has one: Proxy-Anchor's, whose pull it shares
    ),
    "pnp": LossRow(
        path="trainables.losses.ranking:PNP",
        paper="PNP (Li et al.), eq. 2-13",
        equation="mean_queries mean_{i∈P} f(R_i), R_i = Σ_N σ((s_n-s_i)/temperature); Dq: f = 1 - (1+R)^-alpha",
    ),
    "smooth_ap": LossRow(
        path="trainables.losses.ranking:SmoothAP",
        paper="Smooth-AP (Brown et al. 2020; Li et al., eq. 3-4)",
        equation="mean_queries mean_{i∈P} 1 - (1+R(i,P)) / (1+R(i,P)+R(i,N)), R = Σ_j σ((s_j-s_i)/temperature)",
    ),
    "topk_precision": LossRow(
        path="trainables.losses.ranking:TopKPrecision",
        paper="top-k precision (Lu et al.), eq. 4-10",
        equation="Σ_queries Σ_{misplaced N} ŝ - Σ_{misplaced P} ŝ, ŝ = s + margin for negatives",
    ),
    "angular": LossRow(
        path="trainables.losses.pairs:Angular",
        paper="Angular (Wang et al. 2017, eq. 7-8)",
        equation="mean_{a,p} log(1 + Σ_N e^{4 tan²(angle) (x_a+x_p)·x_n - 2(1+tan²(angle)) x_a·x_p})",
    ),
}

LOSSES: "PartTable[type[Loss], LossRow]" = PartTable("loss", _ROWS, base="trainables.losses.base:Loss")


def loss_row(loss: str) -> LossRow:
    """What is known of the loss with this name or import path; one's own says it in attributes of its class.

    Raises:
        Mistakes: the import path leads to no loss.
    """
    if loss in LOSSES:
        return LOSSES.rows[loss]
    own = LOSSES[loss]
    return LossRow(
        path=loss,
        paper=getattr(own, "paper", ""),
        equation=getattr(own, "equation", ""),
        proxy_lr=getattr(own, "proxy_lr", None),
    )


__getattr__ = late_import(__name__, {"Loss": "trainables.losses.base"})

__all__ = ["LOSSES", "Loss", "LossRow", "loss_row"]


# A loss as a search names it: a plain name, and for one's own loss where it is imported from.


@dataclass(frozen=True, kw_only=True)
class LossPart:
    """One loss of a search: ``name`` is shown and names its study; ``path`` is None for a row of ``LOSSES``."""

    name: str
    path: str | None = None

    @property
    def key(self) -> str:
        """What ``LOSSES[key]`` and ``TrialSpec.loss`` take, in any process: the row's name, or the import path."""
        return self.path or self.name


def loss_part(loss: str, name: str | None = None) -> LossPart:
    """The part of the loss with this name or import path.

    One's own is called ``name``. Without one it is imported, and called by its own ``name`` or that of its class.

    Raises:
        Mistakes: the import path leads to no loss.
    """
    if is_own(loss):
        return LossPart(name=name or LOSSES.plain_name(loss), path=loss)
    return LossPart(name=loss)
