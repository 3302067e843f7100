"""The images that are queries, and the gallery that each of them is ranked against.

Shapes: N images, Q queries, K images of the gallery, C classes.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from trainables.errors import raise_if_any


@dataclass(frozen=True, kw_only=True, eq=False)
class RetrievalProtocol:
    """The queries and the gallery among N images, both bool [N].

    An image is never in its own gallery. With ``cameras_N`` (int64) a query also ignores the images of its class that
    its own camera took, as in Market-1501 (Zheng et al., Scalable Person Re-identification, 2015): they are neither
    hits nor misses.
    """

    queries_N: Tensor
    gallery_N: Tensor
    cameras_N: Tensor | None = None

    @classmethod
    def first(cls, queries: int, images: int) -> "RetrievalProtocol":
        """Return the protocol in which the first ``queries`` of all ``images`` are ranked against all others."""
        every_N = torch.ones(images, dtype=torch.bool)
        return cls(queries_N=torch.arange(images) < queries, gallery_N=every_N)

    def check(self, images: int) -> None:
        """Raise :class:`InvalidInput` unless it is of this number of ``images``, with a query and a gallery."""
        given = {"queries": self.queries_N, "gallery": self.gallery_N, "cameras": self.cameras_N}
        sentences = [
            f"{name} must have one entry for each of {images} embeddings; the shape is {tuple(of_N.shape)}."
            for name, of_N in given.items()
            if of_N is not None and of_N.shape != (images,)
        ]
        if not sentences and not (self.queries_N.any() and self.gallery_N.any()):
            sentences = ["There is no query, or no item in the gallery: mark some items as each."]
        raise_if_any(sentences)

    def __getitem__(self, rows: Tensor) -> "RetrievalProtocol":
        """Return the protocol of some of the images."""
        return self._changed(lambda of_N: of_N[rows])

    def with_further(self, images: int) -> "RetrievalProtocol":
        """Return the protocol with ``images`` more at the end, which are in the gallery only."""
        added = (0, images)
        cameras_N = None if self.cameras_N is None else pad(self.cameras_N, added, value=-1)
        return RetrievalProtocol(
            queries_N=pad(self.queries_N, added), gallery_N=pad(self.gallery_N, added, value=True), cameras_N=cameras_N
        )

    def to(self, device: torch.device) -> "RetrievalProtocol":
        return self._changed(lambda of_N: of_N.to(device))

    def _changed(self, change: Callable[[Tensor], Tensor]) -> "RetrievalProtocol":
        return RetrievalProtocol(
            queries_N=change(self.queries_N),
            gallery_N=change(self.gallery_N),
            cameras_N=None if self.cameras_N is None else change(self.cameras_N),
        )

    def ignored(self, labels_N: Tensor, queries_Q: Tensor, rows_QK: Tensor) -> Tensor:
        """Return which of the images ``rows_QK`` (of 1 or Q rows) each query ignores: bool [Q, K]."""
        own_QK = rows_QK == queries_Q[:, None]
        if self.cameras_N is None:
            return own_QK
        same_QK = labels_N[rows_QK] == labels_N[queries_Q][:, None]
        return own_QK | (same_QK & (self.cameras_N[rows_QK] == self.cameras_N[queries_Q][:, None]))

    def counts(self, labels_N: Tensor) -> tuple[Tensor, Tensor]:
        """Return R [N], the number of relevant images in each image's gallery, and the number that it ignores [N]."""
        _, class_N = labels_N.unique(return_inverse=True)
        of_class_N = _counted(class_N, self.gallery_N)
        if self.cameras_N is None:
            ignored_N = self.gallery_N.long()
        else:
            _, camera_N = self.cameras_N.unique(return_inverse=True)
            ignored_N = _counted(class_N * (int(camera_N.max()) + 1) + camera_N, self.gallery_N)
        return of_class_N - ignored_N, ignored_N


def _counted(groups_N: Tensor, gallery_N: Tensor) -> Tensor:
    """Return the number of gallery images in the group of each image."""
    return groups_N[gallery_N].bincount(minlength=int(groups_N.max()) + 1)[groups_N]
