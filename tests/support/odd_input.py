"""Odd input that means what plain input does, or is refused by name: paths, lists, numbers, environments."""

import csv
import random
import unicodedata
from collections.abc import Callable
from pathlib import Path

NAMES = (
    "M\N{LATIN SMALL LETTER U WITH DIAERESIS}ller", "\N{HANGUL SYLLABLE HAN}", "Stra\N{LATIN SMALL LETTER SHARP S}e",
    "a.b", "x y", "it's", 'a "b"', "a:b", "a;b", "a|b", "a\u2028b", "a\x85b", "a\x0bb", "a\x1cb", "a\nb", "a,b", "50%",
    "b ", "a&b", "a#b", "a?b", "[a]", "*", "~", "{a}", "$HOME", "%41",
)  # fmt: skip
"""Names of folders and files, with separators, quotes and letters of two Unicode forms."""
WRITTEN: dict[str, Callable[[str], str]] = {
    "as it is": lambda path: path,
    "composed": lambda path: unicodedata.normalize("NFC", path),
    "decomposed": lambda path: unicodedata.normalize("NFD", path),
    "in capitals": lambda path: path.replace("a", "A").replace(".png", ".PNG"),
    "with backslashes": lambda path: path.replace("/", "\\"),
    "with a dot": lambda path: f"./{path}",
}


def odd_list(root: Path, draw: random.Random) -> tuple[Path, dict[str, tuple[str, ...]]]:
    """Write empty images below ``root`` and a list with one odd path; return the list and the classes it means."""
    parts = [*draw.choices(NAMES, k=draw.randint(1, 3)), draw.choice(("image.png", "image.png "))]
    key = unicodedata.normalize(draw.choice(("NFC", "NFD")), "/".join(parts))
    keys = [key, *(f"c{number}/0.png" for number in range(8))]
    for path in (root / each for each in keys):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    way = draw.choice(sorted(WRITTEN))
    written, index = WRITTEN[way](key), draw.choice((True, False))
    if way in ("as it is", "composed", "decomposed") and draw.choice((True, False)):
        written = f"{root}/{written}"
    classes = [f"{draw.choice(NAMES)}{row}" for row in range(len(keys))]
    encoding, quoting = draw.choice(("utf-8", "utf-8-sig")), draw.choice((csv.QUOTE_MINIMAL, csv.QUOTE_ALL))
    with (root / "list.csv").open("w", newline="", encoding=encoding) as file:
        writer = csv.writer(file, quoting=quoting, lineterminator=draw.choice(("\n", "\r\n")))
        writer.writerow([*[""] * index, "path", "class"])
        for row, path in enumerate([written, *keys[1:]]):
            writer.writerow([*[str(row)] * index, path, classes[row]])
    return root / "list.csv", dict(zip(classes, ((each,) for each in keys), strict=True))


REAL = (
    "{}", "np.float32({})", "np.longdouble({})", "np.array({})", "torch.tensor({}, requires_grad=True)",
    "torch.tensor({}).bfloat16()",
)  # fmt: skip
"""Expressions of a number."""
NO_NUMBERS = (
    "datetime.date(2026, 1, 1)", "datetime.timedelta(1)", "np.datetime64('2026-01-01')", "np.datetime64(1, 'ns')",
    "pathlib.Path('3')", "enum.Enum('E', {'A': 'b'}).A", "np.array([3, 3])", "torch.ones(2)", "[3, 3]", "b'3'", "{3}",
    "3j", "np.complex64(3)", "'3'", "np.str_('3')", "object()", "torch.ones(1, device='meta')",
    "np.timedelta64(1, 'ns')",
)  # fmt: skip
IMPORTS = "import datetime, enum, os, pathlib\nimport numpy as np, torch\n"
"""What the expressions need."""

LAUNCHERS = {
    "Slurm": {"SLURM_NTASKS": "4", "SLURM_PROCID": "3", "SLURM_LOCALID": "3", "SLURM_NODEID": "1", "SLURM_NPROCS": "4"},
    "torchrun": {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "h", "MASTER_PORT": "1"},
    "MPI": {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1", "PMI_RANK": "1", "PMI_SIZE": "2"},
    "accelerate": {"ACCELERATE_USE_FSDP": "true", "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "x"},
}
