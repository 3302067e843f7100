"""Text as a data set: docstrings of the installed packages, whose class is the module that defines them.

    python examples/docstrings.py docstrings.npz
    holdout init docstrings.npz
    holdout run docstrings.yaml

The embeddings are TF-IDF weights reduced to 256 dimensions (latent semantic analysis). Both are fitted to the first
half of the classes by name, on which a search trains and validates. A text that occurs twice is left out, since a
search refuses test items that are training items, too.
"""

import ast
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from trainables.common.files import write_whole

PACKAGES = ("matplotlib", "numpy", "optuna", "pandas", "ray", "scipy", "sklearn", "torch")
SHORTEST = 200  # characters
FEWEST, MOST = 8, 30  # docstrings of a module
DIMENSIONS = 256


def docstrings(file: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the docstring of each public function and class in a file; nothing is imported."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            text = ast.get_docstring(node) or ""
            if len(text) >= SHORTEST:
                yield f"{node.name}:{node.lineno}", text


def modules() -> dict[str, list[tuple[str, str]]]:
    """Map the names of modules with enough docstrings to those, without tests and generated files."""
    found, seen = {}, set()
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            continue
        root = Path(spec.origin).parent
        for file in sorted(root.rglob("*.py")):
            name = ".".join((package, *file.relative_to(root).with_suffix("").parts))
            if "test" in name or "generated" in name:
                continue
            entries = [entry for entry in docstrings(file) if entry[1] not in seen][:MOST]
            if len(entries) >= FEWEST:
                found[name] = entries
                seen |= {text for _, text in entries}
    return found


def main(target: str) -> None:
    """Write the embeddings, labels and ids of all docstrings."""
    classes = modules()
    texts = [text for entries in classes.values() for _, text in entries]
    labels = [name for name, entries in classes.items() for _ in entries]
    ids = [f"{module} {name}" for module, entries in classes.items() for name, _ in entries]
    known = set(sorted(classes)[: len(classes) // 2])
    model = make_pipeline(
        TfidfVectorizer(sublinear_tf=True, min_df=3, token_pattern=r"[A-Za-z]{2,}", stop_words="english"),
        TruncatedSVD(DIMENSIONS, random_state=0),
    )
    model.fit([text for text, label in zip(texts, labels, strict=True) if label in known])
    embeddings = model.transform(texts).astype(np.float32)
    some = embeddings.any(axis=1)  # a text without a known word has no direction
    kept = np.flatnonzero(some).tolist()
    arrays = {
        "embeddings": embeddings[some],
        "labels": np.array([labels[row] for row in kept]),
        "ids": np.array([ids[row] for row in kept]),
    }
    write_whole(Path(target), lambda file: np.savez(file, **arrays))
    print(f"{target} holds {len(kept):,} docstrings of {len(classes)} modules.")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "docstrings.npz")
