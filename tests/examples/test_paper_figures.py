"""Figures of the papers: numbers against closed forms, loops and the papers' own, and the files written.

Shapes: P points, N candidates or points.
"""

import math
from collections.abc import Callable
from itertools import product
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

from examples.papers import pnp_toy
from examples.papers.__main__ import main
from examples.papers.figures import FIGURES, Shown, picture, style
from examples.papers.pnp import PRINTED, ap_slope, built, curve, named, pnp_1, pnp_3, pnp_5, surface
from examples.papers.pnp_toy import POINTS, embedded, network, points, trained
from examples.papers.sampling import (
    FIG_2,
    FIG_3,
    NAMES,
    SAME_N,
    WorkedRanking,
    descended,
    precision,
    start,
    top_k_terms,
    triplet_terms,
    worked,
)
from trainables.losses.pairs import VARIANTS

AT = [0.0, 0.01, 0.5, 1.0, 3.0, 40.0]
B, ALPHA = 2.5, 3.0

# f(R) and its derivative, derived by hand
CLOSED: dict[str, tuple[Callable[[float], float], Callable[[float], float]]] = {
    "O": (lambda r: r, lambda r: 1.0),
    "Iu": (lambda r: (1 + r) * math.log(1 + r), lambda r: 1 + math.log(1 + r)),
    "Ib": (lambda r: r / B - math.log(1 + B * r) / B**2, lambda r: r / (1 + B * r)),
    "Ds": (lambda r: math.log(1 + r), lambda r: 1 / (1 + r)),
    "Dq": (lambda r: 1 - (1 + r) ** -ALPHA, lambda r: ALPHA / (1 + r) ** (ALPHA + 1)),
}


def shown(draw: Callable[[Figure], Shown]) -> Shown:
    with style("test"):
        return draw(Figure(layout="constrained"))


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_and_its_derivative(variant: str) -> None:
    function, derivative = CLOSED[variant]
    found = curve(built(variant, bound=B, alpha=ALPHA).penalty, np.array(AT))
    assert found.value_P == pytest.approx([function(r) for r in AT], rel=1e-12, abs=1e-15)
    assert found.slope_P == pytest.approx([derivative(r) for r in AT], rel=1e-12)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_loss_of_a_batch_is_what_is_drawn(variant: str) -> None:
    """Three negatives are between the two samples of the class, at 0° and 60°, so R is 3 for both."""
    degrees = torch.tensor([0.0, 60.0, 1.0, 2.0, 3.0], dtype=torch.float64)
    embeddings = torch.stack((degrees.deg2rad().cos(), degrees.deg2rad().sin()), dim=1)
    value = built(variant, bound=B, alpha=ALPHA, temperature=1e-4)(embeddings, torch.tensor([0, 0, 1, 2, 3]))
    assert value.item() == pytest.approx(CLOSED[variant][0](3.0), rel=1e-6)


def test_the_print_contradicts_itself_at_iu_alone() -> None:
    for variant, (_, printed) in PRINTED.items():
        loss = built(variant, bound=B, alpha=ALPHA)
        apart = printed(np.array(AT), loss) - [CLOSED[variant][1](r) for r in AT]
        assert apart == pytest.approx([-1.0 if variant == "Iu" else 0.0] * len(AT), abs=1e-12)
    found = shown(pnp_3)
    assert "PNP-Iu's by 1 (eq. 6);" in found.finding
    assert "derivatives of Iu and Ib rise with R, those of Ds and Dq fall" in found.finding
    assert [row[-1] for row in found.table.rows] == ["the same", "differs by 1", "the same", "the same", "the same"]


def test_average_precision_and_its_derivatives() -> None:
    positives, negatives = [0.0, 1.0, 3.0, 10.0], [0.0, 1.0, 10.0]
    found = surface(np.array(positives), np.array(negatives))
    for (p, positive), (n, negative) in product(enumerate(positives), enumerate(negatives)):
        ahead = 1 + positive + negative
        assert found.loss_PN[p, n] == pytest.approx(1 - (1 + positive) / ahead, abs=1e-15)  # eq. 4
        assert found.by_negatives_PN[p, n] == pytest.approx((1 + positive) / ahead**2)  # eq. 14
        assert found.by_positives_PN[p, n] == pytest.approx(-negative / ahead**2)
        assert ap_slope(int(positive), np.array(negatives))[n] == pytest.approx((1 + positive) / ahead**2)
    assert "goes +10 in R(i, P) for −1 in R(i, N)" in shown(pnp_1).finding
    assert "falls to 1/36 with no positive before, and to 1/5.1 with 3" in shown(pnp_5).finding
    assert "from 2 to 1/216 of it" in shown(pnp_5).finding


@pytest.mark.parametrize(
    ("ranking", "loss", "negatives", "positives"),
    [
        (FIG_2, 0.65 + 0.6 - (0.55 + 0.4), {0.65, 0.6}, {0.55, 0.4}),
        (FIG_3, 0.8 + 0.65 - (0.55 + 0.53), {0.8, 0.65}, {0.55, 0.53}),
    ],
)
def test_a_worked_ranking(ranking: WorkedRanking, loss: float, negatives: set[float], positives: set[float]) -> None:
    """Compare with the losses and sets in the captions; triplets are recomputed by loops."""
    assert set(ranking.printed) >= negatives | positives
    found = worked(ranking)
    topk = found[f"top-{ranking.k} precision"]
    assert topk.loss == pytest.approx(loss)
    for score, pull in zip(ranking.scores, topk.pull_N, strict=True):
        assert pull == (score in negatives) - (score in positives)
    pairs = [
        (p, n)
        for p, n in product(range(len(ranking.scores)), repeat=2)
        if ranking.relevant[p] and not ranking.relevant[n]
    ]
    terms = {(p, n): max(ranking.scores[n] - ranking.scores[p], 0.0) for p, n in pairs}
    assert found["all triplets"].loss == pytest.approx(sum(terms.values()))
    worst = min(s for s, y in zip(ranking.scores, ranking.relevant, strict=True) if y)
    nearest = max(s for s, y in zip(ranking.scores, ranking.relevant, strict=True) if not y)
    assert found["hard triplet"].loss == pytest.approx(nearest - worst)
    semi_hard = 0.0
    for p in {p for p, _ in pairs}:
        below = [n for q, n in pairs if q == p and ranking.scores[n] - 0.1 < ranking.scores[p] - 1e-9]
        semi_hard += max((terms[p, n] for n in below), default=0.0)
    assert found["semi-hard triplets"].loss == pytest.approx(semi_hard)


def test_what_is_moved_beside_the_boundary() -> None:
    before = start()
    assert before.norm(dim=1).numpy() == pytest.approx(np.ones(len(NAMES)))
    order = sorted(range(len(NAMES)), key=lambda at: -before[at, 2].item())
    assert sum(SAME_N[at] for at in order[:5]) == 3
    assert precision(before) == 0.6
    wisely, steps = descended(top_k_terms, None)
    assert precision(wisely) == 1
    assert precision(descended(top_k_terms, steps - 1)[0]) < 1
    triplet, done = descended(triplet_terms, steps)
    assert done == steps
    assert precision(triplet) == 0.6
    for after, moved in ((wisely, "ABCD"), (triplet, "EF")):
        nearer = (after - before)[:, 2]
        for name, same, gain in zip(NAMES, SAME_N, nearer.tolist(), strict=True):
            assert (gain > 1e-12) == (bool(name) and name in moved and same), name
            assert (gain < -1e-12) == (bool(name) and name in moved and not same), name


def test_the_toys_points_and_network() -> None:
    train, test = points(0)
    for some in (train, test):
        assert some.labels_N.bincount().tolist() == [POINTS] * 4 == [150] * 4
        assert torch.equal(some.places_N2, points(0)[0 if some is train else 1].places_N2)
    assert torch.equal(train.places_N2[:, 0], train.places_N2[:, 1])
    low, high = (limit(train.places_N2[:, 0].reshape(4, 150), dim=1).values for limit in (torch.min, torch.max))
    assert (low[1:] > high[:-1]).all()
    assert (test.places_N2 == torch.tensor(0.2)).any(dim=1).all()
    assert sum(entry.numel() for entry in network(0).parameters()) == 3 * 30 + 31 * 30 + 31 * 2


@pytest.mark.parametrize("name", sorted(FIGURES.keys() - {"pnp-6"}))
def test_every_figure_is_a_file(name: str) -> None:
    row = FIGURES[name]
    svg = picture(name, ".svg")[0].decode()
    root = ElementTree.fromstring(svg)
    assert root.attrib["viewBox"] == f"0 0 {row.width} {row.height}"
    texts = "".join(root.itertext())
    assert row.source in texts
    assert "var(" not in svg  # no colours from a page's style sheet


def test_the_toy_is_drawn_with_every_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use two seeds, few steps and few points, since each seed trains five networks."""
    monkeypatch.setattr(pnp_toy, "SEEDS", (4, 5))
    monkeypatch.setattr(pnp_toy, "STEPS", 4)
    monkeypatch.setattr(pnp_toy, "POINTS", 40)
    content, said = picture("pnp-6", ".svg")
    texts = "".join(ElementTree.fromstring(content.decode()).itertext())
    for title in ("training and test data", "before training", *(named(built(variant)) for variant in VARIANTS)):
        assert title in texts
    rows = {row[0]: row[1:] for row in said.table.rows}
    assert len(rows) == 6
    train, _ = points(4)
    model = trained(built("Ib"), train, 4)
    unit_N2 = embedded(model, train)
    within = [1 - (one @ one.T)[~torch.eye(40, dtype=torch.bool)].mean().item() for one in unit_N2.split(40)]
    scored = pnp_toy.scores(model, train)
    assert scored["dists_intra"] == pytest.approx(np.mean(within), abs=1e-5)
    mean, deviation = map(float, rows["PNP-Ib, b = 4"][2].split("\n±"))
    assert abs(mean - scored["dists_intra"]) == pytest.approx(deviation / 2**0.5, abs=1.5e-3)


# The command.


def test_the_command_lists_and_writes_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([])
    text = capsys.readouterr().out
    assert all(name in text and row.source in text for name, row in FIGURES.items())
    file = tmp_path / "worked.png"
    file.write_text("replaced")
    main(["sampling-3", "--to", str(file)])
    said = capsys.readouterr().out
    assert "= 0.37; the paper's is 0.37" in said
    assert "worked.png" in said
    with Image.open(file) as image:
        assert image.size == (2 * FIGURES["sampling-3"].width, 2 * FIGURES["sampling-3"].height)
    assert [entry.name for entry in tmp_path.iterdir()] == ["worked.png"]


MISTAKES = "pnp-8 --to a.svg", "sampling-3", *(f"sampling-3 --to {file}" for file in ("a.pdf", "b/a.svg", "folder.svg"))


@pytest.mark.parametrize("arguments", MISTAKES)
def test_mistakes_exit_with_2(arguments: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder.svg").mkdir()
    with pytest.raises(SystemExit) as exit_of:
        main(arguments.split())
    assert exit_of.value.code == 2
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder.svg"]
