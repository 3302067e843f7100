"""Search space of every loss: ranges, their sources and conditions, with the defaults of ``LOSSES``.

Sources: MPA is Saeki et al., Multi Proxy Anchor Family Loss; PNP is Li et al., Rethinking the Optimization of Average
Precision; top-k is Lu et al., Sampling Wisely; thesis is Psomas, Metric Learning: A Deep Dive. A source covers the
default and the range; "chosen" marks what no paper gives.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from spaces.space import Parameter, Space, Value
from trainables.errors import InvalidInput
from trainables.losses import LIBRARY, LOSSES, LossPart

TABLE_15 = "thesis, Tables 4 and 15"
TABLE_4 = "thesis, Table 4; range chosen: that of Table 15's margins"
UNSCALED = "thesis, eq. {}, has none; range chosen: up to ArcFace's default"

Range = Callable[..., Parameter]
"""A :class:`Parameter` without its default."""


def _float(low: float, high: float, source: str, *, step: float | None = None, log: bool = False) -> Range:
    return partial(Parameter, distribution=FloatDistribution(low, high, step=step, log=log), source=source)


def _margin(source: str) -> Range:
    """Return the range of a margin in cosines."""
    return _float(0, 1, source, step=0.1)


def _scale(source: str) -> Range:
    return _float(2, 100, source, step=2)


def _one_of(choices: Sequence[Value], source: str) -> Range:
    return partial(Parameter, distribution=CategoricalDistribution(choices), source=source)


_TEMPERATURE = _float(0.001, 0.1, "PNP, experimental set-up; range chosen: a decade either way", log=True)

_CENTRES = {
    "proxies_per_class": _one_of(
        (1, 2, 4, 8, 10, 12, 16), "MPA, section 4.2 (2 on Stanford Online Products); its Table 7 tries 1 to 16"
    ),
    "gamma": _float(0.01, 1, "MPA, section 4.2; thesis, Table 15, searches the inverse up to 100", log=True),
    "tau": _margin("MPA, section 4.2; thesis, Table 15"),
}

_MPA: dict[str, Range] = {
    "proxies_per_class": _CENTRES["proxies_per_class"],
    "similarity": _one_of(("softmax",), "MPA, eq. 1; the max and mean that section 3.2 names are baselines"),
    "gamma": partial(_CENTRES["gamma"], when={"similarity": ("softmax",)}),
    "tau": _CENTRES["tau"],
    "margin": _margin("MPA, section 4.2; range chosen: Proxy-Anchor's"),
    "scale": _scale("given nowhere: Proxy-Anchor's, thesis, Tables 4 and 15"),
}

_RANGES: dict[str, dict[str, Range]] = {
    "contrastive": {"margin": _margin(TABLE_4)},
    "triplet": {
        "margin": _margin(TABLE_4),
        "mining": _one_of(
            ("semi_hard", "hard", "distance_weighted", "uniform", "all", "top_k"),
            "thesis, Table 5; top-k, Figure 4 and section 5",
        ),
    },
    "lifted_structure": {
        "margin": _margin(TABLE_4),
        "mining": _one_of(("all", "hard"), "thesis, eq. 2.21: all; its Table 5: hard"),
        "pos_scale": _float(1, 64, f"{UNSCALED.format('2.21')}; the thesis's code: 2, top-k's: 10", log=True),
        "neg_scale": _float(1, 64, f"{UNSCALED.format('2.21')}; the thesis's code: 40, top-k's: 10", log=True),
    },
    "npair": {"l2": _float(0.002, 0.2, "thesis, Table 4; range chosen: a decade either way", log=True)},
    "margin": {
        "margin": _margin(TABLE_4),
        "beta": _float(
            0.6, 1.4, "thesis, Table 4; range chosen: from similar to nearly orthogonal, √2 apart", step=0.1
        ),
        "distance": _one_of(("euclidean",), "the distance whose boundary is 1.2; the other is a baseline"),
        "mining": _one_of(("distance_weighted", "all", "top_k"), "thesis, Table 5; top-k, section 5"),
    },
    "multi_similarity": {
        "margin": _margin(TABLE_15),
        "pos_scale": _scale(TABLE_15),
        "neg_scale": _scale(TABLE_15),
        "epsilon": _margin(TABLE_15),
    },
    "softmax": {
        "similarity": _one_of(("cosine", "dot"), "chosen: as all other losses; thesis, eq. 2.26: dot"),
        "scale": partial(
            _float(1, 64, UNSCALED.format("2.26"), log=True),
            when={"similarity": ("cosine",)},
        ),
    },
    "proxy_nca": {
        "scale": _float(1, 64, f"{UNSCALED.format('2.27')}; the code top-k follows: 18, the thesis's: 64", log=True)
    },
    "arcface": {
        "margin": _float(0, 60, "thesis, Table 4, in degrees; range chosen: none to twice the default"),
        "scale": _float(16, 256, "thesis, Table 4; range chosen: four times either way", log=True),
    },
    "soft_triple": {
        "margin": _margin(TABLE_15),
        "scale": _scale(TABLE_15),
        **_CENTRES,
        # the thesis steps through the inverse, (0, 100] by 10
        "gamma": partial(_CENTRES["gamma"], paper_grid=tuple(1 / inverse for inverse in range(10, 101, 10))),
    },
    "proxy_anchor": {"margin": _margin(TABLE_15), "scale": _scale(TABLE_15)},
    "mpa": _MPA,
    "mpa_dw": _MPA,
    "mpa_ap": _MPA,
    "proxy_push": {
        "similarity": _one_of(("proxy", "data"), "thesis, eq. 6.1 and 6.2; it gives proxy first"),
        "margin": _margin("given nowhere: Proxy-Anchor's"),
        "scale": _scale("given nowhere: Proxy-Anchor's"),
    },
    "pnp": {
        "variant": _one_of(("Ib", "Ds", "Dq"), "PNP, Tables 1 and 2: Recall@1 no lower than O's; Iu's is lower"),
        "temperature": _TEMPERATURE,
        "alpha": partial(
            _float(1, 8, "PNP, Figure 8 (a): as large as stays stable; its code's command: 4"),
            when={"variant": ("Dq",)},
        ),
        "bound": partial(
            _float(1, 10, "PNP, Figure 8 (b): 4 on Stanford Online Products, 1 on VehicleID"),
            when={"variant": ("Ib",)},
        ),
    },
    "smooth_ap": {"temperature": _TEMPERATURE},
    "topk_precision": {
        "margin": _margin("top-k, section 4.4; range chosen: the thesis's Table 15"),
        "k": partial(
            Parameter,
            distribution=IntDistribution(1, 10),
            source="top-k, section 4.4; section 3.2: usually 3, 5 or 10",
        ),
    },
    "angular": {
        "angle": _float(30, 60, "Wang et al. 2017, in degrees; range chosen around it", step=5),
        "mining": _one_of(("all", "top_k"), "Wang et al. 2017: all; top-k, section 5"),
    },
}

SPACES: dict[str, Space] = {
    loss: {name: declare(default=LOSSES.rows[loss].defaults[name]) for name, declare in ranges.items()}
    for loss, ranges in _RANGES.items()
}
"""Space of every row of ``LOSSES``."""

EXAMPLE = """\
space = {"margin": Parameter(distribution=FloatDistribution(0, 1), default=0.25, source="Sun et al. 2020")}"""


def declared_space(loss: LossPart) -> Space:
    """Return the declared space of ``loss``: its row of ``SPACES``, or a user-defined class's attribute ``space``.

    A user-defined loss is imported.

    Raises:
        InvalidInput: the loss cannot be imported, or declares no space.
    """
    if loss.path is None:
        return SPACES[loss.name]
    own = LOSSES[loss.path]
    if loss.path.startswith(f"{LIBRARY}."):
        return _library_space(own.defaults)  # type: ignore[attr-defined]
    space = getattr(own, "space", None)
    if not isinstance(space, Mapping) or not all(isinstance(row, Parameter) for row in space.values()):
        found = "it has none" if space is None else f"it is {space!r:.100}"
        raise InvalidInput(
            f"The loss {loss.path!r} must declare its search space in a class attribute space, a mapping from params "
            f"to holdout.parts.Parameter that may be empty; {found}. Write for example `{EXAMPLE}`."
        )
    return space


COUNTS = ("centers_per_class", "sub_centers", "num_bins")
"""Hyperparameters of pytorch-metric-learning that are whole numbers; its defaults of the others may look like ones."""


def _library_space(defaults: Mapping[str, Value]) -> Space:
    """Return the space of a loss of pytorch-metric-learning: its defaults, which a search file widens, and no miner."""
    return {
        name: Parameter(distribution=_only(name, value), default=value, source="pytorch-metric-learning's default")
        for name, value in {**defaults, "miner": "none"}.items()
    }


def _only(name: str, value: Value) -> BaseDistribution:
    if isinstance(value, bool | str):
        return CategoricalDistribution((value,))
    assert isinstance(value, int | float)
    return IntDistribution(int(value), int(value)) if name in COUNTS else FloatDistribution(value, value)
