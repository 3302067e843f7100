"""Input of a user's own, drawn: vectors, arrays, folders, lists, and code with odd values, names and actions."""

import locale
import os
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from support.forms import LABELS, NUMBERS, ODD

from attack.inputs import READ_SEARCH, Action, Attack, command, run_copy
from attack.world import LOSSES, World

HARM = 70
"""The exit code of an action that found a wrong value."""
NAMES = (
    "a?b#c%20d", "it's", '"q"', "<img src=x onerror=alert(1)>", "\N{LATIN SMALL LETTER U WITH DIAERESIS}", "a b", "-rf",
    "${HOME}", "a\nb", "~", "*", "[x]", "x;y&z", "%s{0}", "x" * 200,
)  # fmt: skip
"""Names of folders and files."""


def refusing(action: Callable[[], bool]) -> Action:
    """Return an action that ends with 2 if ``action`` refuses the input, and with :data:`HARM` if it returns True."""

    def run() -> int:
        from trainables.errors import InvalidInput

        try:
            return HARM * action()
        except InvalidInput as refused:
            sys.stdout.write(" ".join(refused.sentences))
            return 2

    return run


def scores(world: World, draw: random.Random) -> Attack:
    """Vectors with ties, in another order and of another length: no score changes."""
    seed, exponent = draw.randrange(2**32), draw.choice((-700, -300, -150, -40, 0, 40, 150, 300, 700))
    names = ["map", "map_at_r", "r_precision", "recall_at_1", "recall_at_4", "precision_at_4", "ndcg_at_4", "map_at_2"]

    def differ() -> bool:
        import holdout

        drawn = np.random.default_rng(seed)
        vectors, labels = drawn.integers(-1, 3, (60, 3)) + 0.0, drawn.integers(0, drawn.integers(1, 20), 60)
        order = drawn.permutation(60)
        vectors[~vectors.any(1), 0] = 1  # zero has no direction
        before = holdout.evaluate(vectors, labels, names)
        after = holdout.evaluate(vectors[order] * 2.0**exponent, labels[order], names)
        sys.stdout.write(f"{before} {after}")
        return any(abs(before[name] - after[name]) > 1e-9 for name in names)

    return Attack(kind="scores", name=f"ties × 2^{exponent}", prepare=lambda folder: None, action=refusing(differ))


def arrays(world: World, draw: random.Random) -> Attack:
    """Vectors and classes in any form that numpy takes: the values of arrays, or a sentence."""
    of_vectors, vectors_as = draw.choice([*NUMBERS.items(), *ODD.items()])
    of_labels, labels_as = draw.choice([*LABELS.items(), *ODD.items()])

    def differ() -> bool:
        import holdout

        vectors, labels = np.arange(1.0, 37.0).reshape(12, 3) ** 2 % 7 + 0.5, np.arange(12) % 4
        expected = holdout.evaluate(vectors, labels)
        try:
            given = vectors_as(vectors), labels_as(labels)
        except (TypeError, ValueError):  # the library has no such array
            return False
        return abs(holdout.evaluate(*given)["map_at_r"] - expected["map_at_r"]) > 1e-9

    name = f"vectors as {of_vectors}, classes as {of_labels}"
    return Attack(kind="arrays of a user", name=name, prepare=lambda folder: None, action=refusing(differ))


SYSTEMS = (
    "@eaDir",
    ".git",
    "__MACOSX",
    "$RECYCLE.BIN",
    ".Trash-1000",
    ".thumbnails",
    "~snapshot",
    ".ipynb_checkpoints",
)
FILES = (
    "Thumbs.db",
    "x.jfif",
    "x.gif",
    "x.txt",
    "x",
    ".hidden.png",
    "._x.png",
    "x.PNG ",
    "x.jpeg.jpg.",
    "empty.png",
    *NAMES[:8],
)


def folders(world: World, draw: random.Random) -> Attack:
    """A folder of images with those of systems, odd names and other files: no thumbnail is an image."""
    system, place, inner = draw.choice(SYSTEMS), draw.choice(("", "class-00", "class-01/deep")), draw.random()

    def prepare(folder: Path) -> None:
        own, root = random.Random(inner), folder / "images"
        shutil.copytree(world.images, root)
        some = sorted(root.glob("*/*.png"))
        (root / place / system).mkdir(parents=True)
        shutil.copy(some[0], root / place / system / "thumbnail.png")
        for name in own.sample(FILES, 4):
            shutil.copy(own.choice(some), root / "class-02" / name)
        (root / "class-02" / "empty.png").write_bytes(b"")
        odd = root / own.choice(("Class-03", "class-03 ", "03", *NAMES[:8]))
        odd.mkdir()
        for number in range(own.choice((0, 1, 5, 5))):
            shutil.copy(some[number], odd)

    def takes_them() -> bool:
        from trainables.data.sets.folders import Folder

        return any(system in key for keys in Folder(root="images").classes().values() for key in keys)

    def look() -> int:
        return refusing(takes_them)() or command("init", "images", "-o", "s.yaml")() or 0  # type: ignore[return-value]

    return Attack(kind="a folder", name=f"{place}/{system}", prepare=prepare, action=look)


PATHS = (
    "../images/class-00/00.png", "/etc/passwd", "images\\class-00\\00.png", '"images/a, b.png"', "", " ", "%20",
    "https://h/x.png", "./images/class-00/00.png", "images/../images/class-00/01.png", "images/class-00/00.png\r",
    "C:\\x.png", "IMAGES/class-00/00.PNG", "images/a\u2028b.png", "images/a\x0bb.png", "a\tb", '"',
    "/dev/zero", "x" * 5000, "\ufeffimages/class-00/00.png", "=cmd()", "\x1b[31m", "images", *NAMES,
)  # fmt: skip


def lists(world: World, draw: random.Random) -> Attack:
    """A list of images with odd paths and classes."""
    odd, inner = draw.sample(PATHS, draw.choice((1, 1, 3))), draw.random()
    header = draw.choice((*["path,class"] * 5, "\ufeffpath,class", "class,path", "path;class", "path,class,path", ""))

    def prepare(folder: Path) -> None:
        shutil.copytree(world.images, folder / "images")
        rows = [f"{path.relative_to(folder)},{path.parent.name}" for path in sorted(folder.glob("images/*/*.png"))]
        rows += [f"{path},{random.Random(inner).choice(PATHS)}" for path in odd]
        random.Random(inner).shuffle(rows)
        (folder / "list.csv").write_text("\n".join([header, *rows]), errors="surrogatepass")

    init = command("init", "list.csv", "-o", "s.yaml")
    return Attack(kind="a list", name=f"{header!r}, {odd!r:.60}", prepare=prepare, action=init)


def places(world: World, draw: random.Random) -> Attack:
    """A search in a folder of any name, in any locale."""
    place, (name, action) = draw.choice(NAMES), draw.choice(list(READ_SEARCH.items()))
    spoken = draw.choice(("C", "C.UTF-8"))

    def prepare(folder: Path) -> None:
        (folder / place).mkdir()
        run_copy(world, folder / place)

    def there() -> object:
        os.chdir(place)
        locale.setlocale(locale.LC_ALL, spoken)
        return action()

    return Attack(kind="a place", name=f"{place!r:.40}: {name}", prepare=prepare, action=there)


# Code. It raises, acts on the process, and reports; the search survives it, and the secret stays in the environment.

SECRET = "os.environ['ATTACK_SECRET']"
ACTIONS = (
    "pass", "sys.exit()", "sys.exit('no')", "os.chdir('/')", "torch.set_default_dtype(torch.float64)", "random.seed(0)",
    "locale.setlocale(locale.LC_ALL, 'C')", "warnings.simplefilter('error')", "np.seterr(all='raise')",
    "signal.signal(signal.SIGINT, signal.SIG_IGN)", "torch.manual_seed(0)", "torch.set_grad_enabled(False)",
    "argparse.ArgumentParser().parse_args(['--x'])", "sys.stdout = sys.stderr = io.StringIO()", "1 / 0",
    "raise MemoryError", "raise ExceptionGroup('x', [ValueError('y')])", "raise Exception(object())",
    f"raise ValueError({SECRET})", f"raise KeyError({{'url': f'postgresql://u:{{{SECRET}}}@h/x'}})",
    "raise StopIteration", f"warnings.warn({SECRET})", f"logging.getLogger('lab').error('with %s', {SECRET})",
    f"open('/none/' + {SECRET})",
    f"exec('try:\\n raise ValueError({SECRET})\\nexcept ValueError as e:\\n raise RuntimeError(repr(e)) from e')",
)  # fmt: skip
VALUES = (
    "1.0", "float('nan')", "float('inf')", "-float('inf')", "1e308 * 10", "None", "'1'", "True", "np.float32(1)",
    "torch.tensor(1.0)", "10**400", "1j", "[1]", "np.array([1, 2])", SECRET,
)  # fmt: skip
REPORTED = (
    "loss", "Recall@1", "a/../b", "a//b", "..", "", " ", "x" * 300, "<img src=x>", "a:b", "%s", "a\nb", "a\0b",
    "map_at_r", "\N{LATIN SMALL LETTER E WITH ACUTE}", "\ud7ff", "mlflow.x",
)  # fmt: skip
LAB = """
import argparse, io, locale, logging, os, random, signal, sys, warnings
import numpy as np, torch, holdout

def metric(embeddings, labels):
    return {value}

@holdout.trainable(lr=holdout.Float(0.001, 0.1, log=True, default=0.01))
def train(params, train, report):
    scale = torch.ones(np.asarray(train.items).shape[1])
    for epoch in range(report.epochs):
        if params["lr"] != 0.01 or {always}:
            {action}
        report(lambda items: torch.tensor(np.asarray(items)) * scale, **{{{name!r}: {reported}}})
"""
SEARCH = """
name: lab
trainable: lab:train
dataset: {name: features, file: f.npz}
training: {epochs: 1}
search: {trials: 2, pruner: none}
selection: {finalists: 1, seeds: 1}
final: {seeds: 1}
metrics: {test: [map_at_r, "lab:metric"]}
resources: {engine: in_process}
"""


def code(world: World, draw: random.Random) -> Attack:
    """A training and a metric of a user, run in a folder of any name, and what reads the search afterwards."""
    place, action, name = draw.choice(NAMES), draw.choice(ACTIONS), draw.choice(REPORTED)
    value, reported, always = draw.choice(VALUES), draw.choice(VALUES), draw.random() < 0.2
    read = draw.choice([words for words in READ_SEARCH if words.split()[0] not in ("live", "export", "test")])

    def prepare(folder: Path) -> None:
        (folder / place).mkdir()
        written = LAB.format(value=value, action=action, name=name, reported=reported, always=always)
        (folder / place / "lab.py").write_text(written)
        (folder / place / "lab.yaml").write_text(SEARCH)
        drawn = np.random.default_rng(0)
        vectors = np.repeat(drawn.normal(size=(12, 4)), 5, axis=0) + drawn.normal(size=(60, 4))
        labels = np.array([f"c{row // 5:02d}" for row in range(60)])
        np.savez(folder / place / "f.npz", embeddings=vectors.astype("f4"), labels=labels)

    launched = draw.choice(({}, {}, {"SLURM_NTASKS": "4", "SLURM_PROCID": "1"}, {"WORLD_SIZE": "2", "RANK": "1"}))
    columns = draw.choice((None, None, "0", "-1", "5"))

    def run_and_read() -> int:
        os.chdir(place)
        os.environ |= launched | ({} if columns is None else {"COLUMNS": columns})
        words = [{"small": "lab", LOSSES[1]: "train"}.get(word, word) for word in read.split()]
        return max(_code(command("run", "lab.yaml", "--runs", "runs")), _code(command(*words, "--runs", "runs")))

    title = f"{action:.40}, {name!r:.20} = {reported:.20}, {value:.20} in {place!r:.20}: {read}"
    return Attack(kind="code", name=title, prepare=prepare, action=run_and_read, may_trace=True)


def _code(action: Action) -> int:
    try:
        return int(action() or 0)  # type: ignore[call-overload, no-any-return]
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else HARM


GIVEN: dict[str, Callable[[int], object]] = {
    **{kind: lambda number, kind=kind: getattr(np, kind)(number) for kind in ("int8", "uint32", "int64", "str_")},
    "array": np.array, "list": lambda number: [np.int64(number)], "float32": np.float32, "path": lambda n: Path(str(n)),
    "date": lambda number: np.datetime64("2026-01-01") + number, "bytes": lambda number: bytes([number]),
    "set": lambda number: {number}, "complex": np.complex64, "none": lambda number: None,
}  # fmt: skip
"""What Python code may give for a whole number."""


def values(world: World, draw: random.Random) -> Attack:
    """Values of libraries in a search file given from Python: their number, or a sentence."""
    (name, form), key = draw.choice([*GIVEN.items()]), draw.choice(("search.trials", "split.seed", "training.epochs"))
    number = draw.randint(1, 9)

    def differs() -> bool:
        from search.config.search_config import parse_config

        section, _, entry = key.partition(".")
        content = {"name": "x", "dataset": {"name": "glyphs"}, "losses": ["pnp"], section: {entry: form(number)}}
        return bool(getattr(getattr(parse_config(content), section), entry) != number)

    return Attack(kind="values", name=f"{key}: {name}", prepare=lambda folder: None, action=refusing(differs))


RETURNED: dict[str, Callable[[np.ndarray], object]] = {
    "as due": lambda image: image, "a view": lambda image: image[::-1, ::-1], "in Fortran's order": np.asfortranarray,
    "grey": lambda image: image[..., 0], "four channels": lambda image: np.dstack([image, image[..., 0]]),
    "floats": lambda image: image / 255, "whole numbers": lambda image: image.astype("i8"), "a list": np.ndarray.tolist,
    "channels first": lambda image: image.transpose(2, 0, 1), "nothing": lambda image: None, "empty": lambda i: i[:0],
    "a pair": lambda image: (image, 1), "text": str, "objects": lambda image: image.astype(object),
}  # fmt: skip
"""What the ``read`` of a data set may return."""


def reads(world: World, draw: random.Random) -> Attack:
    """A data set whose ``read`` returns anything: the pixels as given, or one sentence that names ``read``."""
    name, seed = draw.choice([*RETURNED]), draw.randrange(2**32)

    def differ() -> bool:
        from trainables.data.sets.glyphs import Glyphs
        from trainables.data.store.build import build_store
        from trainables.data.store.view import Store

        image = np.random.default_rng(seed).integers(0, 256, (9, 7, 3), dtype=np.uint8)
        given = RETURNED[name](image)

        class Mine(Glyphs):
            def read(self, key: str) -> np.ndarray:
                return given  # type: ignore[return-value]

        store = build_store(Mine(), list(Mine().classes())[:2], short_side=64, cache=Path("cache"), workers=1)
        view = Store.open(store)
        return not isinstance(given, np.ndarray) or not len(view.image_keys)

    return Attack(kind="a data set", name=name, prepare=lambda folder: None, action=refusing(differ))


KINDS = (scores, arrays, folders, lists, places, code, code, values, reads)
