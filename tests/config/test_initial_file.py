"""``holdout init``: its file, which passes all checks of a search for any images, its output and its errors."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.commands import holdout_here, json_of, printed, refusal
from support.refusals import refused
from support.small_disk import small_files
from support.small_search import unreadable

from search.config.initial_file import (
    ImageFacts,
    Machine,
    dataset_at,
    dataset_facts,
    initial_text,
    name_for,
    write_initial_file,
)
from search.config.recipes import read_search
from search.config.search_config import parse_config
from search.config.yaml_file import parse_yaml
from search.driver.doctor import examine
from search.driver.make_plan import make_plan
from search.records.plan import Plan
from trainables.common.errors import InvalidInput

CPU = Machine(cpus=1, gpus=0)


def facts_at(path: Path, *, frozen: bool | None = None) -> ImageFacts:
    return dataset_facts(dataset_at(path), frozen=frozen)


def _draw(root: Path, sizes: Sequence[int], height: int = 20, width: int = 20) -> Path:
    """Return a folder with a class for each of ``sizes``, of that many grey images."""
    pixels = np.full((height, width, 3), 127, dtype=np.uint8)
    for number, size in enumerate(sizes):
        folder = root / f"class {number:03d}"
        folder.mkdir(parents=True)
        for image in range(size):
            Image.fromarray(pixels).save(folder / f"{image}.png")
    return root


def _plan(facts: ImageFacts, runs: Path, machine: Machine = CPU) -> Plan:
    """Return the plan of the unchanged file."""
    return make_plan(parse_config(parse_yaml(initial_text(facts, machine), "the file")), runs)


SHAPES = {
    "large images": ([4] * 8, 270, 400),
    "five pixels": ([4] * 10, 5, 7),
    "unequal classes": ([1, 20, 2, 7, 1, 3] * 4, 20, 30),
    "one class of two in each part": ([1] * 6 + [2, 2, 2] + [1] * 8 + [2], 20, 20),
    "many classes": ([2] * 120, 16, 16),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_file_passes_as_it_stands(shape: str, tmp_path: Path) -> None:
    sizes, height, width = SHAPES[shape]
    facts = facts_at(_draw(tmp_path / "birds", sizes, height, width))
    plan = _plan(facts, tmp_path / "runs")
    training = plan.config.training
    assert plan.config.name == "birds"
    assert plan.config.dataset.root == str(tmp_path / "birds")
    assert training.batch_size <= 2 * facts.train_images
    assert training.images_per_class <= max(2, int(np.median([sizes[int(name[-3:])] for name in plan.split.train])))
    assert training.frame.short_side <= max(min(height, width), 18)
    assert plan.split.seed == facts.split_seed
    assert len(plan.split.train) == facts.class_sizes.count
    assert not (tmp_path / "runs").exists()


def test_photographs_get_a_frozen_network_and_the_command_for_its_weights(
    empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    said = printed("init", _draw(empty / "small", [3] * 8, 70, 70))
    assert "--download" not in said
    assert parse_config(read_search(Path("small.yaml"))).model.backbone == "convnet"
    said = printed("init", _draw(empty / "birds", [3] * 8, 240, 240))
    assert said.endswith("holdout backbones resnet50 --download holdout run birds.yaml")
    config = parse_config(read_search(Path("birds.yaml")))
    assert (config.model.backbone, config.model.weights, config.model.is_frozen) == ("resnet50", "imagenet", True)
    assert (config.split.ratio, config.final.train_on, config.training.image_size) == (0.5, "all", 112)
    words = "weights of resnet50 are not on this machine. `holdout backbones resnet50 --download` downloads them"
    assert words in refusal("run", "birds.yaml")
    holdout_here("init", "birds", "--backbone", "convnet", "-o", "convnet.yaml")
    assert parse_config(read_search(Path("convnet.yaml"))).split.ratio == 0.9
    assert not (tmp_path / "torch" / "hub").exists(), "nothing is downloaded unasked"


def test_the_example_space_holds(tmp_path: Path) -> None:
    text = initial_text(facts_at(_draw(tmp_path / "birds", [4] * 8)), CPU)
    with_space = re.sub(r"^# (space: .*)$", r"\1", text, flags=re.MULTILINE)
    plan = make_plan(parse_config(parse_yaml(with_space, "the file")), tmp_path / "runs")
    assert plan.config.space.keys() == {"mpa", "training"}


def test_no_test_image_is_opened(tmp_path: Path) -> None:
    root = _draw(tmp_path / "birds", [3] * 12)
    whole = facts_at(root)
    with unreadable(*sorted(root.iterdir())[6:]):
        assert facts_at(root) == whole


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        ([5], r"There is one class \(class 000\), and a search needs at least 8"),
        ([5] * 7, "There are 7 classes"),
        ([1] * 20, r"None of the \d+ train classes has 2 images, and a class with one has nothing to find"),
        ([3] * 10 + [0], r"1 of the 11 class folders .* without images"),
        ([3] * 10 + [1] * 10, "None of the 10 test classes has 2 images"),
        ([], "has no sub-folder"),
    ],
)
def test_a_folder_that_cannot_be_searched_is_refused(sizes: list[int], sentence: str, tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    with pytest.raises(InvalidInput, match=sentence):
        facts_at(_draw(tmp_path / "images", sizes))


def test_a_folder_of_unreadable_images_is_refused(tmp_path: Path) -> None:
    broken = _draw(tmp_path / "broken", [2] * 8)
    with (
        unreadable(*broken.iterdir()),
        pytest.raises(InvalidInput, match=r"None of 8 images can be read, such as class 00\d/0\.png"),
    ):
        facts_at(broken)


def test_a_search_is_called_after_its_folder(tmp_path: Path) -> None:
    roots = ("/data/CUB_200_2011", "/data/birds/images", "/data/Vögel & Co", "/data/2024", "/data/...", None)
    assert [*map(name_for, roots)] == ["CUB_200_2011", "birds", "V-gel-Co", "2024", "search", "glyphs"]
    for odd, name in (('1e5 "quoted": #x', "1e5-quoted-x"), ("2024/images", "2024")):
        facts = facts_at(_draw(tmp_path / odd, [3] * 8))
        config = parse_config(parse_yaml(initial_text(facts, CPU), "the file"))
        assert (config.name, config.dataset.root) == (name, str(tmp_path / odd))


def test_a_pretrained_network_is_frozen(tmp_path: Path, weights: Path) -> None:
    root = _draw(tmp_path / "birds", [4] * 8)
    file = tmp_path / "birds.yaml"
    said = printed("init", root, "-o", file, "--backbone", "resnet18", "--weights", weights)
    sentence = "loaded 100 of 102 tensors of resnet18.pth; left out fc.weight, fc.bias."
    assert f"resnet18: {sentence}" in said
    config = parse_config(parse_yaml(file.read_text(), "the file"))
    assert (config.model.weights, config.model.is_frozen) == (str(weights), True)
    assert (config.split.ratio, config.final.train_on, config.metrics.gallery) == (0.5, "all", "training_half")
    plan = make_plan(config, tmp_path / "runs")
    assert plan.config.training.epochs == 20
    assert plan.notices == (f"model.weights: {sentence}",)
    (check,) = (check for check in examine(config, tmp_path / "runs", [], []) if check.check == "weights")
    assert check.found == sentence.rstrip(".")


def test_weights_without_their_network_are_refused(tmp_path: Path, weights: Path) -> None:
    init = ["init", _draw(tmp_path / "birds", [4] * 8), "-o", tmp_path / "birds.yaml", "--weights", weights]
    refused(tmp_path, init, "--backbone is missing")
    refused(tmp_path, [*init, "--backbone", "convnet"], "Give the weights of this backbone.")


# Few classes of a frozen network.


def _embedded(folder: Path, classes: int) -> Path:
    """Return a file of random embeddings, four for each class."""
    file = folder / f"texts-{classes}.npz"
    labels = np.repeat([f"class {number:03d}" for number in range(classes)], 4)
    np.savez(file, embeddings=np.random.default_rng(0).normal(size=(len(labels), 8)).astype(np.float32), labels=labels)
    return file


@pytest.mark.parametrize(("classes", "on_half"), [(388, True), (392, False)])
def test_half_of_few_embedded_classes_validates(classes: int, on_half: bool, tmp_path: Path) -> None:
    """A network that learns as a whole needs the classes to learn from, and ranks on the fixed split as well."""
    root = _draw(tmp_path / "birds", [4] * 80)
    assert (facts_at(root).ratio, facts_at(root, frozen=True).ratio) == (0.9, 0.5)
    facts = facts_at(_embedded(tmp_path, classes))
    plan = _plan(facts, tmp_path / "runs")
    half = classes // 2
    assert len(plan.split.validation) == (half // 2 if on_half else 20)
    assert (plan.config.final.train_on, plan.config.metrics.gallery) == (
        ("all", "training_half") if on_half else ("train", "validation")
    )
    assert plan.config.search.pruner == ("hyperband" if on_half else "asha")
    assert plan.config.space["training"].keys() == {"lr", "proxy_lr"}


# The command.


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of the commands."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def test_a_folder_or_a_manifest_gets_a_file_that_run_takes(image_folder: Path, empty: Path, tmp_path: Path) -> None:
    said = printed("init", image_folder, "--output", "folder.yaml")
    assert "160 images, of 16 classes" in said
    assert said.endswith("holdout run folder.yaml")
    rows = [f"{path.relative_to(image_folder)},{path.parent.name}" for path in sorted(image_folder.rglob("*.png"))]
    (empty / "birds.csv").write_text("\n".join(["path,class", *rows]))
    assert "160 of the 160 images are missing" in refusal("init", "birds.csv")
    assert "there is no CSV file" in refusal("init", image_folder, "--root", empty)
    holdout_here("init", "birds.csv", "--root", image_folder)
    assert {path.name for path in empty.iterdir()} == {"folder.yaml", "birds.csv", "birds.yaml"}
    for file, name in (("folder.yaml", "folder"), ("birds.yaml", "manifest")):
        plan = make_plan(parse_config(read_search(Path(file))), tmp_path / "runs")
        assert (len(plan.split.train), plan.config.dataset.name) == (6, name)


def test_without_a_folder_it_is_for_drawn_images(empty: Path) -> None:
    record = json_of("init")
    assert (record["file"], record["found"]["classes"]) == ("glyphs.yaml", 96)
    assert "name: glyphs" in (empty / "glyphs.yaml").read_text()


def test_a_full_disk_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "birds.yaml"
    with small_files(100), pytest.raises(InvalidInput, match="cannot be written"):
        write_initial_file(path, "#" * 1000)
    assert not [*tmp_path.iterdir()], "the same command can be repeated"
    write_initial_file(path, "#" * 1000)


def test_mistakes_are_sentences_and_nothing_is_written(image_folder: Path, empty: Path) -> None:
    (empty / "mine.yaml").write_text("mine")
    (empty / "link.yaml").symlink_to("elsewhere")
    (empty / "one" / "class").mkdir(parents=True)
    for words, said in (
        ((image_folder, "-o", "mine.yaml"), "mine.yaml already exists and is not overwritten; name another with --ou"),
        ((image_folder, "-o", "link.yaml"), "link.yaml already exists and is not overwritten"),
        (("one",), "without images: class"),
        (("nowhere",), "nowhere', which does not exist"),
        (("missing.csv",), "There is no file missing.csv; correct its path."),
    ):
        assert said in refusal("init", *words)
    assert {path.name for path in empty.iterdir()} == {"mine.yaml", "link.yaml", "one"}
    assert (empty / "mine.yaml").read_text() == "mine"
