"""Whole searches whose test classes a vault has, and what is refused before they begin."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.commands import holdout_here, plain, printed, write_search
from support.finished_search import finish
from support.kinds import FEW, feature_file, own as own_training
from support.refusals import refused
from support.small_search import SHORTEST, draw_folder, small_search
from support.tampered import Copied, verified
from support.vault_requests import served

from search.records import scored_openings
from search.records.records import Records
from search.records.runs import RunFolder
from search.results.comparison import compare
from search.vault.held import Vault

SMALL: dict[str, Any] = {**SHORTEST, "losses": ["pnp", "triplet"], "metrics": FEW, "final": {"seeds": 2}}


@dataclass(frozen=True)
class Made:
    """A vault that a command made of a folder of images, and the search file of who has the training half."""

    vault: Path
    content: dict[str, Any]

    def changed(self, section: str, **entries: Any) -> dict[str, Any]:
        """Return the search file with other entries of a section."""
        return {**self.content, section: {**self.content.get(section, {}), **entries}}


ByVault = tuple[Made, RunFolder]
"""A vault, and the search that it scored."""


def made(folder: Path, images: Path, *options: str) -> Made:
    holdout_here("vault", "make", images, "--to", folder / "kept", *options)
    dataset = {"name": "manifest", "file": str(folder / "kept-training" / "data.csv")}
    content = {**small_search(folder, **SMALL), "dataset": dataset}
    items = {"vault_items": str(folder / "kept-items")} if "--labels-only" in options else {}
    return Made(
        folder / "kept",
        {**content, "final": {"seeds": 2, "vault": f"{sys.executable} -m holdout vault answer {folder}/kept", **items}},
    )


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_folder(tmp_path_factory.mktemp("data") / "images")


@pytest.fixture(scope="module")
def by_vault(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ByVault]:
    """The same of who has the training half; not to be changed."""
    vault = made(tmp_path_factory.mktemp("vault"), images)
    with served(vault.vault) as address:
        runs = finish(tmp_path_factory.mktemp("by-vault") / "runs", vault.changed("final", vault=address))
        yield vault, RunFolder(runs, "small")


def test_a_search_ends_with_the_values_of_one_that_has_all_images(
    images: Path, by_vault: ByVault, tmp_path: Path
) -> None:
    own = RunFolder(finish(tmp_path, small_search(images, **SMALL)), "small")
    (first,), (second,) = (scored_openings(folder.test) for folder in (own, by_vault[1]))
    metrics = [[(entry.per_image, entry.metrics) for entry in opening.scores] for opening in (first, second)]
    assert metrics[0] == metrics[1]
    ours, theirs = (compare([Records(folder)]) for folder in (own, by_vault[1]))
    assert [row.test for row in theirs.rows] == [row.test for row in ours.rows]
    numbers = [
        [(pair.difference, *(pair.ci95 or ()), pair.p_corrected) for pair in each.pairs] for each in (ours, theirs)
    ]
    assert numbers[1] == [pytest.approx(pair, abs=1e-9) for pair in numbers[0]]
    assert theirs.searches[0].recommended == ours.searches[0].recommended
    assert theirs.searches[0].split.test_classes == 8


def test_it_is_verified_on_both_sides_and_says_who_scored(by_vault: ByVault) -> None:
    vault, folder = by_vault
    key = scored_openings(folder.test)[0].vault["key"]
    assert f"opening 1 of 1 by the vault {key[:12]}" in printed("compare", "small", "--runs", folder.runs)
    said = holdout_here("verify", "small", "--runs", folder.runs).stdout
    assert "as the vault signed them" in said
    assert "the models and training images that the vault saw" in plain(said)
    assert said.splitlines()[-1].startswith("Verified")
    assert holdout_here("vault", "verify", vault.vault).stderr.startswith("Verified")


CHANGES = {
    "a score": ("test.json", '"map_at_r": 0.', '"map_at_r": 0.99', "scores.0.metrics.map_at_r: 0.99"),
    "its number": ("test.json", '"number": 1', '"number": 2', "vault.number: 2 is stored, 1 recomputed"),
    "the answer": ("vault.json", '\\"overlap\\": 0', '\\"overlap\\": 1', "was not signed by the vault"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_what_the_vault_signed_is_found(by_vault: ByVault, change: str, tmp_path: Path) -> None:
    copied, (file, before, after, found) = Copied(by_vault[1].runs, tmp_path / "runs"), CHANGES[change]
    (path,) = copied.path.rglob(file)
    copied.text(str(path.relative_to(copied.path)), before, after)
    assert found in verified(copied.runs, code=1)


@pytest.mark.slow
def test_a_vault_that_keeps_class_values_gives_a_table_without_intervals(
    by_vault: ByVault, images: Path, tmp_path: Path
) -> None:
    vault = made(tmp_path, images, "--no-class-values")
    folder = RunFolder(finish(tmp_path / "runs", vault.content), "small")
    found, other = compare([Records(folder)]), compare([Records(by_vault[1])])
    assert [row.test for row in found.rows] == [row.test for row in other.rows]
    assert found.pairs == ()
    assert found.left_out == ("no pairs: the vault keeps the values of classes, which intervals need",)
    assert not [*folder.path.glob("test/*/*.npz")]
    assert holdout_here("verify", "small", "--runs", folder.runs).stdout.splitlines()[-1].startswith("Verified")
    assert found.left_out[0] in printed("compare", "small", "--runs", folder.runs)


@pytest.fixture(scope="module")
def of_vectors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    """A vault of vectors that keeps only labels secret."""
    folder = tmp_path_factory.mktemp("vectors")
    vault = made(folder, feature_file(folder), "--labels-only", "--openings", "2")
    dataset = {"name": "features", "file": str(folder / "kept-training" / "data.npz")}
    content = {**own_training("function_training", folder), "search": {"trials": 1}}
    with served(vault.vault) as address:
        final = {**content["final"], **vault.content["final"], "vault": address}
        yield Made(vault.vault, {**content, "dataset": dataset, "final": final})


@pytest.mark.slow
def test_an_own_training_is_tested_by_its_embeddings(of_vectors: Made, tmp_path: Path) -> None:
    name = of_vectors.content["name"]
    folder = RunFolder(finish(tmp_path / "runs", of_vectors.content), name)
    assert compare([Records(folder)]).rows[0].test
    assert "only the labels are secret" in printed("compare", name, "--runs", folder.runs)
    said = holdout_here("verify", name, "--runs", folder.runs, "--trust-code").stdout
    assert said.splitlines()[-1].startswith("Verified")


# What is refused before a search begins.


def _run(here: Path, content: dict[str, Any], *sentences: str) -> None:
    refused(here, ["run", write_search(here / "x.yaml", content), "--runs", here / "runs"], *sentences)


ADDRESSES = {
    f"{sys.executable} -m holdout vault answer {{here}}/none": "The vault refuses: the vault is not a vault",
    "/nowhere/vault": "final.vault: The vault '/nowhere/vault' cannot be reached",
    "false": "final.vault: The vault 'false' does not answer (it says nothing)",
    "ssh 'keeper": "cannot be reached (No closing quotation)",
}


@pytest.mark.parametrize(("address", "sentence"), ADDRESSES.items())
def test_a_vault_that_does_not_answer_is_a_sentence(by_vault: ByVault, address: str, sentence: str, here: Path) -> None:
    _run(here, by_vault[0].changed("final", vault=address.format(here=here)), sentence)


def test_used_up_openings_are_a_sentence(by_vault: ByVault, here: Path) -> None:
    _run(here, by_vault[0].content, "final.vault: 1 of 1 openings of the vault were made; ask its owner for another.")


@pytest.fixture(scope="module")
def unopened(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    vault = made(tmp_path_factory.mktemp("unopened"), images)
    with served(vault.vault) as address:
        yield Made(vault.vault, vault.changed("final", vault=address))


WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "a metric of your own": (
        "metrics", {"test": ["support.own_trainings:quality"]}, "quality is your own code, or not of the vault's items"
    ),
    "a metric of superclasses": (
        "metrics", {"test": ["nmi_super"]}, "metrics: nmi_super is your own code, or not of the vault's items"
    ),
    "items that it keeps": ("final", {"vault_items": "."}, "final.vault_items: the vault keeps its test items"),
    "a network without ONNX": (
        "model", {"backbone": "support.odd_networks:Branching"},
        "model.backbone: support.odd_networks:Branching cannot be exported to ONNX",
    ),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_what_a_vault_does_not_score_is_a_sentence(unopened: Made, wrong: str, here: Path) -> None:
    section, entries, sentence = WRONG[wrong]
    _run(here, unopened.changed(section, **entries), sentence)


def test_an_own_training_needs_the_items(
    unopened: Made, of_vectors: Made, here: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """It is refused by a vault of vectors that keeps them, and by one of images for that reason, too."""
    folder = tmp_path_factory.mktemp("secret")
    secret = made(folder, feature_file(folder))
    sentence = "is a user-defined training, whose code the vault does not run; ask its owner for one"
    with served(secret.vault) as address:
        _run(here, of_vectors.changed("final", vault=address, vault_items=None), sentence)
    others = "final.vault: its items are images, and those of dataset are vectors of 12 numbers; name another vault."
    address = unopened.content["final"]["vault"]
    _run(here, of_vectors.changed("final", vault=address, vault_items=None), sentence, others)


@pytest.mark.parametrize("items", [None, "nowhere"])
def test_items_that_are_handed_out_have_to_be_given(of_vectors: Made, items: str | None, here: Path) -> None:
    wrong = of_vectors.changed("final", vault_items=items)
    _run(here, wrong, "final.vault_items: the vault hands out its test items without labels and takes embeddings of")


def test_another_vault_does_not_go_on_with_a_search(
    unopened: Made,
    images: Path,
    here: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.delenv("RAY_ADDRESS")
        finish(here / "runs", {**unopened.content, "stages": ["search"]})
    other = made(tmp_path_factory.mktemp("other"), images)
    key, began = (Vault(each.vault).description([])["key"][:12] for each in (other, unopened))
    with served(other.vault) as address:
        wrong = unopened.changed("final", vault=address)
        _run(here, wrong, f"final.vault: the vault {key} answers, and the search began with the vault {began}")


def test_each_search_of_a_campaign_takes_an_opening(
    unopened: Made, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS")  # the campaign is refused before Ray starts
    campaign = {
        "name": "lot",
        "study": "one part or folds",
        "base": {name: entry for name, entry in unopened.content.items() if name != "name"},
        "vary": {"split": {"fixed": {}, "folds": {"split.folds": 2}}},
        "table": {"rows": ["loss"], "metrics": ["recall_at_1"]},
    }
    path = write_search(here / "lot.yaml", campaign)
    refused(here, ["run", path, "--runs", here / "runs"], "final.vault: 2 searches begin, each of which takes an")
