"""The published data sets: CUB-200-2011, Cars196, SOP, In-Shop, VehicleID, iNaturalist 2018 and Omniglot."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import ClassVar

from trainables.common.errors import InvalidInput, counted, listed
from trainables.common.files import in_digest_order, read_regular
from trainables.data.dataset import GALLERY, QUERY, TRAIN, grouped
from trainables.data.images import IMAGE_SUFFIXES
from trainables.data.sets.folders import images_below
from trainables.data.sets.published import Classes, Counts, Halves, PublishedDataset, counts_of, read_list


@dataclass(frozen=True, kw_only=True)
class CUB200(PublishedDataset):
    """CUB-200-2011 (Wah et al. 2011): 200 species of birds; the first hundred train.

    Class names and their order are those of ``classes.txt``.
    """

    title: ClassVar[str] = "CUB-200-2011"
    summary: ClassVar[str] = "11,788 photographs of 200 species of birds"
    publisher: ClassVar[str] = "https://www.vision.caltech.edu/datasets/cub_200_2011/"
    layout: ClassVar[str] = """\
images.txt                 1 001.Black_footed_Albatross/Black_Footed_Albatross_0046_18.jpg
image_class_labels.txt     1 1
classes.txt                1 001.Black_footed_Albatross
images/001.Black_footed_Albatross/Black_Footed_Albatross_0046_18.jpg"""
    lists: ClassVar[tuple[str, ...]] = ("images.txt", "image_class_labels.txt", "classes.txt")
    published: ClassVar[Counts] = counts_of((100, 5_864), (100, 5_924))

    def _listed(self) -> Halves:
        names = self._table("classes.txt", "class_id class_name")
        paths = self._table("images.txt", "image_id image_name")
        labels = self._table("image_class_labels.txt", "image_id class_id")
        if odd := paths.keys() ^ labels.keys():
            raise ValueError(f"{counted(len(odd), 'image')} in only one of images.txt and image_class_labels.txt")
        return _halved([*names.values()], ((names[labels[image]], f"images/{path}") for image, path in paths.items()))


def _halved(names: Sequence[str], pairs: Iterable[tuple[str, str]]) -> Halves:
    """Return two halves of the classes ``names``; ``pairs`` are the class and the key of each image."""
    if doubled := [name for name, count in Counter(names).items() if count > 1]:
        raise ValueError(f"more than one class is called {listed(doubled)}")
    keys_of, middle = grouped(pairs), len(names) // 2
    train, test = ({name: keys_of.get(name, ()) for name in half} for half in (names[:middle], names[middle:]))
    return train, test


@dataclass(frozen=True, kw_only=True)
class Cars196(PublishedDataset):
    """Cars196 (Krause et al. 2013): 196 models of cars; the first 98 train.

    Class names and their order are those of ``class_names``. The annotations' field ``test`` is not used.
    """

    title: ClassVar[str] = "Cars196"
    summary: ClassVar[str] = "16,185 photographs of 196 models of cars"
    publisher: ClassVar[str] = "https://ai.stanford.edu/~jkrause/cars/car_dataset.html"
    layout: ClassVar[str] = """\
cars_annos.mat             annotations (relative_im_path, class, …) and class_names
car_ims/000001.jpg"""
    lists: ClassVar[tuple[str, ...]] = ("cars_annos.mat",)
    published: ClassVar[Counts] = counts_of((98, 8_054), (98, 8_131))

    def _listed(self) -> Halves:
        from scipy.io import loadmat  # late: no other data set needs it

        content = loadmat(BytesIO(read_regular(self._root / self.lists[0])), squeeze_me=True)
        names, annotations = [str(name) for name in content["class_names"]], content["annotations"]
        if wrong := [label for label in annotations["class"] if not 1 <= label <= len(names)]:
            raise ValueError(f"a class is {wrong[0]}, and there are {len(names)}")
        pairs = zip(annotations["class"], annotations["relative_im_path"], strict=True)
        return _halved(names, ((names[label - 1], str(path)) for label, path in pairs))


@dataclass(frozen=True, kw_only=True)
class SOP(PublishedDataset):
    """Stanford Online Products (Song et al. 2016): products sold on eBay; the authors' lists are the two halves.

    Classes are named by their ``class_id``, in the order of the lists. The products are of twelve kinds (bicycles,
    chairs, …), the superclasses.
    """

    title: ClassVar[str] = "Stanford Online Products"
    summary: ClassVar[str] = "120,053 photographs of 22,634 products"
    publisher: ClassVar[str] = "https://cvgl.stanford.edu/projects/lifted_struct/"
    layout: ClassVar[str] = """\
Ebay_train.txt             image_id class_id super_class_id path
                           1 1 1 bicycle_final/111085122871_0.JPG
Ebay_test.txt              the same
bicycle_final/111085122871_0.JPG"""
    lists: ClassVar[tuple[str, ...]] = ("Ebay_train.txt", "Ebay_test.txt")
    published: ClassVar[Counts] = counts_of((11_318, 59_551), (11_316, 60_502))

    def _images(self, name: str) -> list[list[str]]:
        return self._rows(name, "image_id class_id super_class_id path")

    def _listed(self) -> Halves:
        halves = map(self._images, self.lists)
        train, test = (grouped((product, path) for _, product, _, path in half) for half in halves)
        return train, test

    def superclasses(self) -> dict[str, str]:
        """Map products to their ``super_class_id``."""
        images = chain.from_iterable(map(self._images, self.lists))
        kinds = grouped((product, kind) for _, product, kind, _ in images)
        if several := [product for product, found in kinds.items() if len({*found}) > 1]:
            raise InvalidInput(
                f"{counted(len(several), 'product')} in {str(self.root)!r} with more than one super_class_id: "
                f"{listed(several)}. Restore the published lists."
            )
        return {product: kinds[product][0] for product in self.classes()}


@dataclass(frozen=True, kw_only=True)
class InShop(PublishedDataset):
    """DeepFashion In-Shop Clothes Retrieval (Liu et al. 2016): items of a shop, with official queries and gallery.

    Classes are named by their ``item_id``, in the order of the list. The images are below ``Img`` as the publisher's
    archive unpacks there, or else below ``root``.
    """

    title: ClassVar[str] = "In-Shop Clothes Retrieval"
    summary: ClassVar[str] = "52,712 photographs of 7,982 items of clothing, with 14,218 queries and their gallery"
    publisher: ClassVar[str] = "https://mmlab.ie.cuhk.edu.hk/projects/DeepFashion/InShopRetrieval.html"
    layout: ClassVar[str] = """\
Eval/list_eval_partition.txt   52712
                               image_name item_id evaluation_status
                               img/WOMEN/Dresses/id_00000002/02_1_front.jpg id_00000002 train
Img/img/WOMEN/Dresses/id_00000002/02_1_front.jpg"""
    lists: ClassVar[tuple[str, ...]] = ("Eval/list_eval_partition.txt",)
    published: ClassVar[Counts] = {
        **counts_of((3_997, 25_882), (3_985, 26_830)), "queries": 14_218, "gallery images": 12_612
    }  # fmt: skip

    def _counts(self, halves: Halves) -> dict[str, int]:
        found = Counter(part for _, _, part in self._list)
        return {**super()._counts(halves), "queries": found[QUERY], "gallery images": found[GALLERY]}

    @cached_property
    def _list(self) -> list[tuple[str, str, str]]:
        """The key, the item and the part of each image."""
        rows = self._rows(self.lists[0], "image_name item_id evaluation_status", numbered=True)
        if wrong := [part for _, _, part in rows if part not in (TRAIN, QUERY, GALLERY)]:
            raise ValueError(f"an evaluation_status is {wrong[0]!r:.40}")
        inner = "Img/" if os.path.isdir(self._root / "Img") else ""
        return [(f"{inner}{image}", item, part) for image, item, part in rows]

    def _listed(self) -> Halves:
        train, test = (
            grouped((item, key) for key, item, part in self._list if (part == TRAIN) is training)
            for training in (True, False)
        )
        return train, test

    def parts(self) -> dict[str, str]:
        part_of = {key: part for key, _, part in self._list}
        _, test = self._halves
        return {key: part_of[key] for keys in test.values() for key in keys}


@dataclass(frozen=True, kw_only=True)
class VehicleID(PublishedDataset):
    """VehicleID (Liu et al. 2016): vehicles seen by surveillance cameras, with three lists of test vehicles.

    Classes are named by the vehicle's number, in the order of the lists. A model is scored on the vehicles of all test
    lists (``recall_at_1``) and on each list separately (``recall_at_1-small``).
    """

    title: ClassVar[str] = "VehicleID"
    summary: ClassVar[str] = "photographs of 13,164 vehicles to train on, and of 800, 1,600 and 2,400 to test"
    publisher: ClassVar[str] = "https://www.pkuml.org/resources/pku-vehicleid.html (on request)"
    layout: ClassVar[str] = """\
train_test_split/train_list.txt        0279029 23781 (image, vehicle)
train_test_split/test_list_800.txt     the same, and test_list_1600.txt, test_list_2400.txt
image/0279029.jpg"""
    lists: ClassVar[tuple[str, ...]] = tuple(
        f"train_test_split/{name}.txt" for name in ("train_list", "test_list_800", "test_list_1600", "test_list_2400")
    )
    # The papers print other numbers than the released lists contain. Both are accepted.
    published: ClassVar[Counts] = {
        "training classes": (13_164, 13_134),
        "training images": (113_346, 110_178),
        "small test classes": 800,
        "medium test classes": 1_600,
        "large test classes": 2_400,
        "small test images": (6_493, 7_332),
        "medium test images": (13_377, 12_995),
        "large test images": (19_777, 20_038),
    }

    def _counts(self, halves: Halves) -> dict[str, int]:
        counts = super()._counts(halves)
        for name, vehicles in self._test_lists.items():
            counts[f"{name} test classes"] = len(vehicles)
            counts[f"{name} test images"] = sum(map(len, vehicles.values()))
        return counts

    def _listed(self) -> Halves:
        test: Classes = {}
        for name, vehicles in self._test_lists.items():
            # Lists select classes, so a vehicle on several lists has the same images on each.
            if other := [vehicle for vehicle, keys in vehicles.items() if set(test.get(vehicle, keys)) != set(keys)]:
                raise ValueError(f"{name} has other images than a smaller list of {listed(other)}")
            test = {**vehicles, **test}
        return self._list(self.lists[0]), test

    @cached_property
    def _test_lists(self) -> dict[str, Classes]:
        return dict(zip(("small", "medium", "large"), map(self._list, self.lists[1:]), strict=True))

    def _list(self, path: str) -> Classes:
        return grouped((vehicle, f"image/{image}.jpg") for image, vehicle in self._rows(path, "image vehicle"))

    def test_subsets(self) -> dict[str, tuple[str, ...]]:
        """Return the vehicles with images on each list, without lists that ``subset`` leaves empty."""
        _, test = self.published_split()
        there = frozenset(test)
        found = {name: tuple(filter(there.__contains__, vehicles)) for name, vehicles in self._test_lists.items()}
        return {name: vehicles for name, vehicles in found.items() if vehicles}


TRAINING_CATEGORIES, CATEGORIES = 5_690, 8_142


@dataclass(frozen=True, kw_only=True)
class INaturalist(PublishedDataset):
    """iNaturalist 2018 (Van Horn et al. 2018): plants and animals, split as by Brown et al. (Smooth-AP, 2020).

    Contains the published training and validation images. Classes are named and ordered by their category's number.
    Brown et al. trained on 5,690 of the 8,142 categories. Their list can be given as ``class_list``; without it as many
    categories train, those with the lowest hashes of their names.
    """

    title: ClassVar[str] = "iNaturalist 2018"
    summary: ClassVar[str] = "461,939 photographs of 8,142 species of plants and animals"
    publisher: ClassVar[str] = "https://github.com/visipedia/inat_comp/tree/master/2018"
    layout: ClassVar[str] = """\
train2018.json             categories, images (file_name) and annotations (category_id)
val2018.json               the same
train_val2018/Plantae/7477/3b60c9486db1d2ee875f11a669fbde4a.jpg"""
    lists: ClassVar[tuple[str, ...]] = ("train2018.json", "val2018.json")
    published: ClassVar[Counts] = {
        "training classes": TRAINING_CATEGORIES,
        "test classes": CATEGORIES - TRAINING_CATEGORIES,
        "images": 461_939,
    }

    class_list: str | None = field(
        default=None,
        metadata={
            "about": "a file of training categories, or of their images, below root or absolute; null: split by hash"
        },
    )

    def _listed(self) -> Halves:
        classes = grouped(chain.from_iterable(map(self._pairs, self.lists)))
        names = sorted(classes, key=int)
        training = self._training(names)
        train = {name: classes[name] for name in names if name in training}
        return train, {name: classes[name] for name in names if name not in training}

    def _pairs(self, name: str) -> Iterator[tuple[str, str]]:
        """Yield the category and path of each image in an annotation file."""
        content = json.loads(read_regular(self._root / name))
        paths = {image["id"]: image["file_name"] for image in content["images"]}
        for annotation in content["annotations"]:
            path = paths[annotation["image_id"]]
            if not isinstance(path, str):
                raise TypeError(f"a file_name is {path!r}")
            yield str(int(annotation["category_id"])), path

    def _training(self, names: list[str]) -> set[str]:
        if self.class_list is None:
            hashed = in_digest_order([f"inaturalist:{name}" for name in names])
            return {names[at] for at in hashed[: len(names) * TRAINING_CATEGORIES // CATEGORIES]}
        training: dict[str, None] = {}
        for line in filter(None, map(str.strip, read_list(self._root / self.class_list))):
            category, _, last = line.rpartition("/")  # the path of an image of a category, or a number as in 7477
            is_image = category and os.path.splitext(last)[1].lower() in IMAGE_SUFFIXES
            training[category.rpartition("/")[2] if is_image else last] = None
        known = set(names)
        if unknown := [name for name in training if name not in known]:
            raise InvalidInput(
                f"dataset.class_list is {self.class_list!r}, with {len(unknown)} of the {len(training)} categories "
                f"in it missing in the annotations: {listed(unknown)}. Give one category or image path per line."
            )
        return set(training)


@dataclass(frozen=True, kw_only=True)
class Omniglot(PublishedDataset):
    """Omniglot (Lake et al. 2015): handwritten characters of 50 alphabets, laid out as unpacked by torchvision.

    The characters of the background alphabets train. Classes are named ``alphabet/character`` and sorted by name.
    ``root`` may be the folder ``omniglot-py`` or, as in torchvision, its parent.
    """

    title: ClassVar[str] = "Omniglot"
    summary: ClassVar[str] = "32,460 drawings of 1,623 characters of 50 alphabets, 20 each"
    publisher: ClassVar[str] = "https://github.com/brendenlake/omniglot"
    layout: ClassVar[str] = """\
omniglot-py/images_background/Korean/character01/0540_01.png
omniglot-py/images_evaluation/Tibetan/character01/1543_01.png"""
    lists: ClassVar[tuple[str, ...]] = ("images_background", "images_evaluation")
    published: ClassVar[Counts] = counts_of((964, 19_280), (659, 13_180))

    @cached_property
    def _root(self) -> Path:
        assert self.root is not None
        inner = Path(self.root, "omniglot-py")
        return inner if inner.is_dir() else Path(self.root)

    def _listed(self) -> Halves:
        train, test = map(self._half, self.lists)
        return train, test

    def _half(self, folder: str) -> Classes:
        keys = sorted(images_below(self._root / folder, self._root))
        return grouped((key.removeprefix(f"{folder}/").rpartition("/")[0], key) for key in keys)
