"""Vectors of length 1, and what a user gives in any form that ``numpy.asarray`` takes. N vectors, D dimensions."""

import warnings
from contextlib import suppress

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainables.common.errors import InvalidInput, counted

_SAFE = {torch.float64: 2.0**400}
"""Vectors whose largest entry is between the inverse of this number and itself need no scaling."""


def unit(vectors: Tensor) -> Tensor:
    """Return ``vectors`` [..., D] scaled to length 1, whatever their length; zero stays zero and gets no gradient."""
    return unit_and_lengths(vectors)[0]


def unit_and_lengths(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``vectors`` [..., D] scaled to length 1, and their lengths [..., 1], infinite for those that are zero.

    Squares of very short or long vectors underflow or overflow, so these are first divided by a factor, according to
    their largest entry. It is 1 for all others, which have the bits of :func:`torch.nn.functional.normalize`.
    """
    most = _SAFE.get(vectors.dtype, 2.0**50)
    largest = vectors.detach().abs().amax(-1, keepdim=True)
    factors = largest / largest.clamp(1 / most, most)
    factors.masked_fill_(factors == 0, torch.inf)
    scaled = vectors / factors
    lengths = scaled.norm(dim=-1, keepdim=True).clamp(min=0.5 / most)
    return scaled / lengths, lengths * factors


def without_direction(vectors_ND: Tensor) -> str:
    """Return a clause on the vectors that are zero or not finite: how many, and the first; empty if there is none."""
    bad_N = (vectors_ND.isfinite().logical_not() | (vectors_ND == 0).all(1, keepdim=True)).any(1)
    if not bad_N.any():  # waits for the device
        return ""
    rows = bad_N.nonzero().flatten()
    what = "zero" if vectors_ND[rows[0]].isfinite().all() else "not finite"
    return f"{len(rows)} of {len(vectors_ND)} embeddings are zero or not finite (row {int(rows[0])} is {what})"


def without_order(vectors_ND: Tensor) -> str:
    """Return the clause of :func:`without_direction`, or one on vectors that all have the same direction."""
    if bad := without_direction(vectors_ND):
        return bad
    # Rounding in deep networks separates equal ones by up to 8e-7; trainings that nearly collapse leave 8e-3.
    differ = ((unit(rows_BD) - unit(vectors_ND[:1])).norm(dim=1).max() > 2e-6 for rows_BD in vectors_ND.split(1024))
    return "" if len(vectors_ND) < 2 or any(differ) else f"all {len(vectors_ND):,} embeddings have the same direction"


# Lists, arrays, tensors and tables as tensors. Entries count by position; the index of pandas is ignored.


def numbers(given: object, name: str) -> Tensor:
    """Return real numbers as a tensor, detached; raise :class:`InvalidInput`, which has ``name``, for anything else."""
    if isinstance(given, Tensor):
        given = _dense(given)
        if not given.is_complex():
            return given
    array = _array(given, name)
    if array.dtype.kind == "O":  # a column of arrays, or a table with columns of several types
        with suppress(Exception):
            array = np.asarray(array.tolist(), dtype=np.float64)
    if array.dtype.kind not in "biuf":
        raise InvalidInput(f"{name} must be real numbers; they are {type(given).__name__} of {array.dtype}.")
    if array.itemsize > 8 or array.dtype in (np.uint16, np.uint32, np.uint64):  # types that torch lacks in part
        array = array.astype(np.float64)
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    return torch.from_numpy(np.require(native, requirements=["C", "W"]))


def number(given: object, name: str) -> float:
    """Return one real number, also that of an array with one entry; errors are as in :func:`numbers`."""
    found = numbers(given, name)
    if found.numel() != 1 or given is None or isinstance(given, list | tuple):
        raise InvalidInput(f"{name} must be one number.")
    return float(found)


def classes(given: object, name: str) -> Tensor:
    """Return the class of each entry as an int64 tensor: whole numbers as they are, other hashable objects numbered.

    Raises:
        InvalidInput: an entry is missing (NaN, None), or cannot be hashed.
    """
    if isinstance(given, Tensor):
        given = _dense(given)
        if not given.is_floating_point() and not given.is_complex():
            return given.long()
    array = _array(given.double() if isinstance(given, Tensor) and not given.is_complex() else given, name)
    if array.dtype.kind in "SUf" and not hasattr(given, "dtype"):  # NumPy makes texts of NaN and 1, floats of 2⁵³ + 1
        array = np.asarray(given, dtype=object)
    if array.dtype.kind in "biu" and array.dtype != np.uint64:
        return torch.from_numpy(array.astype(np.int64))
    from pandas import factorize

    try:
        numbers_N, _ = factorize(array.ravel())
    except TypeError:
        raise InvalidInput(f"{name} must be one text or number for each item; they are {array.dtype}.") from None
    if len(missing := np.flatnonzero(numbers_N < 0)):
        raise InvalidInput(
            f"{name}: {counted(len(missing), 'entry', 'entries')} missing (NaN or None), the first in row "
            f"{missing[0]}; remove these items, or give them a class."
        )
    return torch.from_numpy(numbers_N.astype(np.int64)).reshape(array.shape)


def mask(given: object, name: str) -> Tensor:
    """Return a bool tensor; raise :class:`InvalidInput` if an entry is neither true nor false, 1 nor 0."""
    found = numbers(given, name)
    if not ((found == 0) | (found == 1)).all():
        raise InvalidInput(f"{name} must be true or false for each item, not the positions of items.")
    return found.bool()


def _dense(given: Tensor) -> Tensor:
    given = given.dequantize() if given.is_quantized else given
    return given.detach() if given.layout is torch.strided else given.detach().to_dense()


def _array(given: object, name: str) -> NDArray[np.generic]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of libraries whose objects are converted
            array = np.asarray(given.cpu() if isinstance(given, Tensor) else given)
    except Exception as error:  # any of the libraries
        raise InvalidInput(
            f"{name} cannot be read as an array ({type(error).__name__}: {error}); give numbers."
        ) from error
    if np.ma.is_masked(given):
        raise InvalidInput(f"{name} has masked entries; remove these items.")
    return array
