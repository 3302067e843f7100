"""Search space of every loss: ranges, their sources and conditions, with the defaults of ``LOSSES``.

Sources: MPA is Saeki et al., Multi Proxy Anchor Family Loss; PNP is Li et al., Rethinking the Optimization of Average
Precision; top-k is Lu et al., Sampling Wisely; thesis is Psomas, Metric Learning: A Deep Dive. A source covers the
default and the range; "chosen" marks what no paper gives.
"""

from collections.abc import Mapping
from dataclasses import replace

from spaces.space import Choice, Float, Int, Range, Space
from trainables.common.errors import InvalidInput, raise_if_any
from trainables.losses import LOSSES, LossPart
from trainables.training.trainable import trainable_class

TABLE_15 = "thesis, Tables 4 and 15"
TABLE_4 = "thesis, Table 4; range chosen: that of Table 15's margins"
UNSCALED = "thesis, eq. {}, has none; range chosen: up to ArcFace's default"


def _margin(source: str) -> Range:
    return Float(0, 1, step=0.1, source=source)


def _scale(source: str) -> Range:
    return Float(2, 100, step=2, source=source)


_TEMPERATURE = Float(0.001, 0.1, source="PNP, experimental set-up; range chosen: a decade either way", log=True)

_CENTRES = {
    "proxies_per_class": Choice(
        (1, 2, 4, 8, 10, 12, 16), source="MPA, section 4.2 (2 on Stanford Online Products); its Table 7 tries 1 to 16"
    ),
    "gamma": Float(0.01, 1, source="MPA, section 4.2; thesis, Table 15, searches the inverse up to 100", log=True),
    "tau": _margin("MPA, section 4.2; thesis, Table 15"),
}

_MPA: dict[str, Range] = {
    "proxies_per_class": _CENTRES["proxies_per_class"],
    "similarity": Choice(("softmax",), source="MPA, eq. 1; the max and mean that section 3.2 names are baselines"),
    "gamma": replace(_CENTRES["gamma"], when={"similarity": ("softmax",)}),
    "tau": _CENTRES["tau"],
    "margin": _margin("MPA, section 4.2; range chosen: Proxy-Anchor's"),
    "scale": _scale("given nowhere: Proxy-Anchor's, thesis, Tables 4 and 15"),
}

_RANGES: dict[str, dict[str, Range]] = {
    "contrastive": {"margin": _margin(TABLE_4)},
    "triplet": {
        "margin": _margin(TABLE_4),
        "mining": Choice(
            ("semi_hard", "hard", "distance_weighted", "uniform", "all", "top_k"),
            source="thesis, Table 5; top-k, Figure 4 and section 5",
        ),
    },
    "lifted_structure": {
        "margin": _margin(TABLE_4),
        "mining": Choice(("all", "hard"), source="thesis, eq. 2.21: all; its Table 5: hard"),
        "pos_scale": Float(1, 64, source=f"{UNSCALED.format('2.21')}; the thesis's code: 2, top-k's: 10", log=True),
        "neg_scale": Float(1, 64, source=f"{UNSCALED.format('2.21')}; the thesis's code: 40, top-k's: 10", log=True),
    },
    "npair": {"l2": Float(0.002, 0.2, source="thesis, Table 4; range chosen: a decade either way", log=True)},
    "margin": {
        "margin": _margin(TABLE_4),
        "beta": Float(
            0.6, 1.4, source="thesis, Table 4; range chosen: from similar to nearly orthogonal, √2 apart", step=0.1
        ),
        "distance": Choice(("euclidean",), source="the distance whose boundary is 1.2; the other is a baseline"),
        "mining": Choice(("distance_weighted", "all", "top_k"), source="thesis, Table 5; top-k, section 5"),
    },
    "multi_similarity": {
        "margin": _margin(TABLE_15),
        "pos_scale": _scale(TABLE_15),
        "neg_scale": _scale(TABLE_15),
        "epsilon": _margin(TABLE_15),
    },
    "softmax": {
        "similarity": Choice(("cosine", "dot"), source="chosen: as all other losses; thesis, eq. 2.26: dot"),
        "scale": Float(1, 64, source=UNSCALED.format("2.26"), log=True, when={"similarity": ("cosine",)}),
    },
    "proxy_nca": {
        "scale": Float(
            1, 64, source=f"{UNSCALED.format('2.27')}; the code top-k follows: 18, the thesis's: 64", log=True
        )
    },
    "arcface": {
        "margin": Float(0, 60, source="thesis, Table 4, in degrees; range chosen: none to twice the default"),
        "scale": Float(16, 256, source="thesis, Table 4; range chosen: four times either way", log=True),
    },
    "soft_triple": {
        "margin": _margin(TABLE_15),
        "scale": _scale(TABLE_15),
        **_CENTRES,
        # the thesis steps through the inverse, (0, 100] by 10
        "gamma": replace(_CENTRES["gamma"], paper_grid=tuple(1 / inverse for inverse in range(10, 101, 10))),
    },
    "proxy_anchor": {"margin": _margin(TABLE_15), "scale": _scale(TABLE_15)},
    "mpa": _MPA,
    "mpa_dw": _MPA,
    "mpa_ap": _MPA,
    "proxy_push": {
        "similarity": Choice(("proxy", "data"), source="thesis, eq. 6.1 and 6.2; it gives proxy first"),
        "margin": _margin("given nowhere: Proxy-Anchor's"),
        "scale": _scale("given nowhere: Proxy-Anchor's"),
    },
    "pnp": {
        "variant": Choice(("Ib", "Ds", "Dq"), source="PNP, Tables 1 and 2: Recall@1 no lower than O's; Iu's is lower"),
        "temperature": _TEMPERATURE,
        "alpha": Float(
            1, 8, source="PNP, Figure 8 (a): as large as stays stable; its code's command: 4", when={"variant": ("Dq",)}
        ),
        "bound": Float(
            1, 10, source="PNP, Figure 8 (b): 4 on Stanford Online Products, 1 on VehicleID", when={"variant": ("Ib",)}
        ),
    },
    "smooth_ap": {"temperature": _TEMPERATURE},
    "topk_precision": {
        "margin": _margin("top-k, section 4.4; range chosen: the thesis's Table 15"),
        "k": Int(1, 10, source="top-k, section 4.4; section 3.2: usually 3, 5 or 10"),
    },
    "angular": {
        "angle": Float(30, 60, source="Wang et al. 2017, in degrees; range chosen around it", step=5),
        "mining": Choice(("all", "top_k"), source="Wang et al. 2017: all; top-k, section 5"),
    },
}

SPACES: dict[str, Space] = {
    loss: {name: replace(entry, default=LOSSES.rows[loss].defaults[name]) for name, entry in ranges.items()}
    for loss, ranges in _RANGES.items()
}
"""Space of every row of ``LOSSES``."""

EXAMPLE = 'space = {"margin": Float(0, 1, default=0.25, source="Sun et al. 2020")}'


def declared_space(loss: LossPart) -> Space:
    """Return the declared space of ``loss``: its row of ``SPACES``, or the attribute ``space`` of an imported class.

    Raises:
        InvalidInput: the loss cannot be imported, or declares no space; or all that is wrong with its ranges.
    """
    if loss.path is None:
        return SPACES[loss.name]
    space = getattr(LOSSES[loss.path], "space", None)
    if not isinstance(space, Mapping) or not all(isinstance(row, Range) for row in space.values()):
        found = "it has none" if space is None else f"it is {space!r:.100}"
        raise InvalidInput(
            f"The loss {loss.path!r} must declare its search space in a class attribute space, a mapping from params "
            f"to ranges (holdout.Float, Int or Choice) that may be empty; {found}. Write for example `{EXAMPLE}`."
        )
    return _checked(loss.path, space)


def space_of_trainable(path: str) -> Space:
    return _checked(path, {name: replace(entry, source=path) for name, entry in trainable_class(path).space.items()})


def _checked(path: str, space: Space) -> Space:
    mistakes = []
    for name, entry in space.items():
        try:
            entry.check()
        except InvalidInput as error:
            mistakes += [f"{path} declares {name} = {entry}: {sentence}" for sentence in error.sentences]
    raise_if_any(mistakes)
    return space
