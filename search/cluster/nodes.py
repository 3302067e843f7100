"""Making the other nodes of a cluster ready before the first trial, and finding out what they lack."""

import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path

from search.tuner import on_other_nodes
from trainables.data.recipe import StoreRecipe
from trainables.mistakes import Mistakes, raise_if_any


def make_nodes_ready(images: Sequence[StoreRecipe], runs: Path) -> None:
    """Decode the images once on every node, and make sure that all share the runs folder, where checkpoints go.

    The driver's own node is ready.

    Raises:
        Mistakes: images that cannot be read somewhere, or nodes that see another folder.
    """
    runs.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=runs.resolve(), prefix=".shared-") as witness:
        answers = on_other_nodes(_ready, images, Path(witness.name))
    raise_if_any(sorted({sentence for sentences in answers for sentence in sentences}))


def _ready(images: Sequence[StoreRecipe], witness: Path) -> tuple[str, ...]:
    """Make this node ready; what is wrong with it."""
    node = socket.gethostname()
    if not witness.exists():
        return (
            f"The runs folder {witness.parent} is not the same on {node}; name one with --runs that all machines of "
            "the cluster share.",
        )
    try:
        for recipe in images:
            recipe.open()
    except Mistakes as error:
        return tuple(f"On {node}: {sentence}" for sentence in error.sentences)
    return ()
