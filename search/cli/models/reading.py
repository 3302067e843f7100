"""Image files through a model: how far it is, which cannot be read, and how fast it was."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search.cli.output import messages, say
from trainables.mistakes import Mistakes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from trainables.data.decode import Unreadable
    from trainables.inference.embedder import Embedder


@dataclass(frozen=True, kw_only=True)
class EmbeddedFiles:
    """Embeddings [N, D] of the images at ``paths``, those that were left out, and what it took."""

    embeddings_ND: "NDArray[np.float32]"
    paths: tuple[str, ...]
    unreadable: "tuple[Unreadable, ...]"
    seconds: float

    @property
    def images_per_second(self) -> float:
        """Of all images, also those that cannot be read."""
        return (len(self.paths) + len(self.unreadable)) / self.seconds

    def record(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "images": len(self.paths),
            "dimensions": self.embeddings_ND.shape[1],
            "unreadable": [{"path": image.key, "reason": image.reason} for image in self.unreadable],
            "seconds": self.seconds,
            "images_per_second": self.images_per_second,
        }


def embedded_files(
    model: "Embedder", paths: Sequence[Path], *, batch_size: int | None, skip_unreadable: bool
) -> EmbeddedFiles:
    """The embeddings of image files, which ``found_images`` found.

    Raises:
        Mistakes: images cannot be read, and are not to be skipped; or none can.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("Embedding images"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = messages()
    begun = time.perf_counter()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=len(paths))
        found = model.embed_readable(
            paths,
            batch_size=batch_size,
            on_progress=lambda done: progress.update(task, completed=done),
            all_or_none=not skip_unreadable,
        )
    seconds = time.perf_counter() - begun
    sentences = [f"{image.key} cannot be read ({image.reason})." for image in found.unreadable]
    if found.unreadable and not skip_unreadable:
        count = f"{len(found.unreadable):,} of {len(paths):,} images cannot be read"
        raise Mistakes([*sentences, f"{count}, and nothing is written: mend them, or give --skip-unreadable."])
    if not len(found.positions_N):
        raise Mistakes([*sentences, f"None of the {len(paths):,} images can be read, and nothing is written."])
    say(sentences, "yellow")
    kept = tuple(str(paths[position]) for position in found.positions_N.tolist())
    files = EmbeddedFiles(embeddings_ND=found.embeddings_ND, paths=kept, unreadable=found.unreadable, seconds=seconds)
    left_out = f"; left out, since unreadable: {len(found.unreadable):,}" if found.unreadable else ""
    what = "1 image" if len(kept) == 1 else f"{len(kept):,} images"
    say([f"{what} in {seconds:.1f} s, {files.images_per_second:,.1f} images a second{left_out}."], "dim")
    return files
