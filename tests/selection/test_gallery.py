"""The queries that a report shows, and their thumbnails."""

import io
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from support.small_search import draw_folder

from search.selection.thumbnails import ExampleKind, GalleryQuery, Thumbnails, gallery_queries, make_pictures
from trainables.data.sets.folders import Folder
from trainables.data.store.contents import StoreContents, read_contents
from trainables.data.store.spec import StoreSpec

KEYS = [f"{n}.png" for n in range(40)]
LABELS = np.repeat(np.arange(8), 5)
ALL = np.arange(40, dtype=np.int32)


def rows_of(queries: list[GalleryQuery], kind: ExampleKind) -> list[int]:
    return [query.row for query in queries if query.kind is kind]


def test_best_median_worst_and_changed_are_of_different_classes() -> None:
    tuned_N = np.linspace(1, 0, 40)
    default_N = tuned_N.copy()
    default_N[[12, 13, 33]] += 0.5, -0.4, 0.1
    queries = gallery_queries(KEYS, LABELS, ALL, tuned_N, default_N)
    assert rows_of(queries, ExampleKind.BEST) == [0, 5, 10], "the best of three classes"
    assert rows_of(queries, ExampleKind.WORST) == [39, 34, 29]
    assert {int(LABELS[row]) for row in rows_of(queries, ExampleKind.MEDIAN)} < {2, 3, 4, 5}
    assert len({int(LABELS[row]) for row in rows_of(queries, ExampleKind.MEDIAN)}) == 3
    assert rows_of(queries, ExampleKind.CHANGED) == [12, 33, 13], "two are of one class: the second comes after"
    assert len({query.row for query in queries}) == len(queries) == 12


def test_equals_go_by_digest_and_what_nobody_can_find_is_left_out() -> None:
    labels = np.array([0, 0, 0, 1])
    queries = gallery_queries(["a", "b", "c", "d"], labels, ALL[:4], np.zeros(4), np.zeros(4))
    assert sorted(query.row for query in queries) == [0, 1, 2], "the fourth is the one image of its class"
    assert not rows_of(queries, ExampleKind.CHANGED)
    assert queries == gallery_queries(["a", "b", "c", "d"], labels, ALL[:4], np.zeros(4), np.zeros(4))
    assert gallery_queries(["a", "b"], np.array([0, 1]), ALL[:2], np.zeros(2), np.zeros(2)) == []


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> StoreContents:
    folder = tmp_path_factory.mktemp("gallery")
    root = draw_folder(folder / "images", classes=2, images=3)
    noise = np.random.default_rng(0).integers(0, 256, (200, 150, 3), dtype=np.uint8)
    noise[:100] = 255, 0, 0
    Image.fromarray(noise).save(root / "class-00" / "00.png")
    dataset = Folder(root=str(root))
    spec = StoreSpec(dataset=dataset, class_names=tuple(dataset.classes()), short_side=150, cache=str(folder / "cache"))
    return read_contents(spec.make())


def image(contents: StoreContents, key: str) -> NDArray[np.uint8]:
    """Return the stored pixels of an image, which are stored column by column."""
    row = contents.image_keys.index(key)
    start, (height, width) = int(contents.lengths_N[:row].sum()), contents.sizes_N2[row].tolist()
    return contents.pixels[start : start + 3 * height * width].reshape(width, height, 3).transpose(1, 0, 2)


def test_pictures_are_small_upright_and_as_many_as_have_room(contents: StoreContents) -> None:
    large = next(key for key in contents.image_keys if key.endswith("class-00/00.png"))
    small = next(key for key in contents.image_keys if key.endswith("class-01/00.png"))
    images = [(number, image(contents, key)) for number, key in enumerate((large, small))]
    pictures = make_pictures(images)
    shown = [Image.open(io.BytesIO(picture)) for picture in pictures.values()]
    assert [image.size for image in shown] == [(64, 85), (20, 20)], "none is enlarged"
    red = np.asarray(shown[0].convert("RGB"))
    assert red[:30].mean(axis=(0, 1)) == pytest.approx([254, 0, 0], abs=8), "the upper half"
    limit = len(pictures[0])
    assert make_pictures(images, limit) == {0: pictures[0]}
    assert make_pictures(images, limit - 1) == {}


def test_thumbnails_are_read_as_they_were_written(contents: StoreContents, tmp_path: Path) -> None:
    pictures = make_pictures((number, image(contents, key)) for number, key in enumerate(contents.image_keys))
    for queries, metric in (((GalleryQuery(ExampleKind.WORST, 2),), "map_at_r"), ((), None)):
        kept = Thumbnails(pictures=pictures, queries=queries, metric=metric)
        path = tmp_path / "thumbnails.npz"
        path.write_bytes(kept.to_bytes())
        assert Thumbnails.read(path) == kept
