"""The search space of every loss, with the papers' defaults."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from spaces.space import Parameter, Space, Value
from trainables.losses import LOSSES, LossPart
from trainables.mistakes import Mistakes

# What may be searched of each loss, with the papers' defaults: one row a loss of ``LOSSES``.
#
# Sources: MPA is Saeki et al., Multi Proxy Anchor Family Loss; PNP is Li et al., Rethinking the Optimization of Average
# Precision; top-k is Lu et al., Sampling Wisely; thesis is Psomas, Metric Learning: A Deep Dive. "Chosen" marks what no
# paper gives.

TABLE_15 = "thesis, Tables 4 and 15"
TABLE_4 = "thesis, Table 4; range chosen: that of Table 15's margins"


def _margin(default: float, source: str) -> Parameter:
    """A margin in cosines."""
    return Parameter(distribution=FloatDistribution(0, 1, step=0.1), default=default, source=source)


def _scale(default: float, source: str) -> Parameter:
    return Parameter(distribution=FloatDistribution(2, 100, step=2), default=default, source=source)


def _log_scale(default: float, low: float, high: float, source: str) -> Parameter:
    return Parameter(distribution=FloatDistribution(low, high, log=True), default=default, source=source)


def _one_of(choices: Sequence[Value], default: Value, source: str) -> Parameter:
    return Parameter(distribution=CategoricalDistribution(choices), default=default, source=source)


_TEMPERATURE = _log_scale(0.01, 0.001, 0.1, "PNP, section on implementation; range chosen: a decade either way")

_CENTRES: Space = {
    "proxies_per_class": _one_of(
        (1, 2, 4, 8, 10, 12, 16), 10, "MPA, section 4.2 (2 on Stanford Online Products); its Table 7 tries 1 to 16"
    ),
    "gamma": _log_scale(0.1, 0.01, 1, "MPA, section 4.2; thesis, Table 15, searches the inverse up to 100"),
    "tau": _margin(0.2, "MPA, section 4.2; thesis, Table 15"),
}

_MPA: Space = {
    **_CENTRES,
    "margin": _margin(0.1, "MPA, section 4.2; range chosen: Proxy-Anchor's"),
    "scale": _scale(32.0, "given nowhere: Proxy-Anchor's, thesis, Tables 4 and 15"),
}

SPACES: dict[str, Space] = {
    "contrastive": {"margin": _margin(0.5, TABLE_4)},
    "triplet": {
        "margin": _margin(0.1, TABLE_4),
        "mining": _one_of(
            ("semi_hard", "hard", "distance_weighted", "uniform", "all"),
            "semi_hard",
            "thesis, Table 5; top-k, Figure 4",
        ),
    },
    "lifted_structure": {
        "margin": _margin(0.5, TABLE_4),
        "mining": _one_of(("all", "hard"), "all", "thesis, eq. 2.21: all; its Table 5: hard"),
    },
    "npair": {"l2": _log_scale(0.02, 0.002, 0.2, "thesis, Table 4; range chosen: a decade either way")},
    "margin": {
        "margin": _margin(0.5, TABLE_4),
        "beta": Parameter(
            distribution=FloatDistribution(0.6, 1.4, step=0.1),
            default=1.2,
            source="thesis, Table 4; range chosen: from similar to nearly orthogonal, √2 apart",
        ),
        "distance": _one_of(("euclidean",), "euclidean", "the distance whose boundary is 1.2; the other is a baseline"),
        "mining": _one_of(("distance_weighted", "all"), "distance_weighted", "thesis, Table 5"),
    },
    "multi_similarity": {
        "margin": _margin(0.5, TABLE_15),
        "pos_scale": _scale(2.0, TABLE_15),
        "neg_scale": _scale(50.0, TABLE_15),
        "epsilon": _margin(0.1, TABLE_15),
    },
    "softmax": {
        "similarity": _one_of(("cosine", "dot"), "cosine", "chosen: as all other losses; thesis, eq. 2.26: dot"),
        "scale": Parameter(
            distribution=FloatDistribution(1, 64, log=True),
            default=1.0,
            source="thesis, eq. 2.26, has none; range chosen: up to ArcFace's default",
            when={"similarity": ("cosine",)},
        ),
    },
    "proxy_nca": {},  # eq. 2.27 has nothing to choose
    "arcface": {
        "margin": Parameter(
            distribution=FloatDistribution(0, 60),
            default=28.6,
            source="thesis, Table 4, in degrees; range chosen: none to twice the default",
        ),
        "scale": _log_scale(64.0, 16, 256, "thesis, Table 4; range chosen: four times either way"),
    },
    "soft_triple": {
        "margin": _margin(0.1, TABLE_15),
        "scale": _scale(20.0, TABLE_15),
        **_CENTRES,
        # The thesis steps through the inverse, (0, 100] by 10.
        "gamma": replace(_CENTRES["gamma"], paper_grid=tuple(1 / inverse for inverse in range(10, 101, 10))),
    },
    "proxy_anchor": {"margin": _margin(0.1, TABLE_15), "scale": _scale(32.0, TABLE_15)},
    "mpa": _MPA,
    "mpa_dw": _MPA,
    "mpa_ap": _MPA,
    "proxy_push": {
        "similarity": _one_of(("proxy", "data"), "proxy", "thesis, eq. 6.1 and 6.2; it gives proxy first"),
        "margin": _margin(0.1, "given nowhere: Proxy-Anchor's"),
        "scale": _scale(32.0, "given nowhere: Proxy-Anchor's"),
    },
    "pnp": {
        "variant": _one_of(("Ib", "Ds", "Dq"), "Dq", "PNP, Tables 1 and 2: the best; O and Iu are its baselines"),
        "temperature": _TEMPERATURE,
        "alpha": Parameter(
            distribution=FloatDistribution(1, 8),
            default=4.0,
            source="PNP, Figure 8 (a): as large as stays stable",
            when={"variant": ("Dq",)},
        ),
        "bound": Parameter(
            distribution=FloatDistribution(1, 10),
            default=4.0,
            source="PNP, Figure 8 (b): 4 on Stanford Online Products, 1 on VehicleID",
            when={"variant": ("Ib",)},
        ),
    },
    "smooth_ap": {"temperature": _TEMPERATURE},
    "topk_precision": {
        "margin": _margin(0.1, "top-k, section 4.4; range chosen: the thesis's Table 15"),
        "k": Parameter(
            distribution=IntDistribution(1, 10), default=5, source="top-k, section 4.4; section 3.2: usually 3, 5 or 10"
        ),
    },
    "angular": {
        "angle": Parameter(
            distribution=FloatDistribution(30, 60, step=5),
            default=45.0,
            source="Wang et al. 2017, in degrees; range chosen around it",
        )
    },
}


# The declared space of a loss: a row of ``SPACES``, or what one's own loss says in its attribute ``space``.

HOW = """\
space = {"margin": Parameter(distribution=FloatDistribution(0, 1), default=0.25, source="Sun et al. 2020")}"""


def declared_space(loss: LossPart) -> Space:
    """What may be searched of ``loss``; one's own loss is imported for it.

    Raises:
        Mistakes: one's own loss is not there, or does not say what may be searched.
    """
    if loss.path is None:
        return SPACES[loss.name]
    space = getattr(LOSSES[loss.path], "space", None)
    if not isinstance(space, Mapping) or not all(isinstance(row, Parameter) for row in space.values()):
        found = "has none" if space is None else f"it is {space!r:.100}"
        raise Mistakes(
            f"The loss {loss.path!r} must say in a class attribute space what may be searched of it, a "
            f"spaces.space.Parameter by name or an empty mapping, and {found}: write such as `{HOW}`."
        )
    return space
