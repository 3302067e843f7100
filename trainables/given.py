"""Numbers and classes that a user gives in any form that ``numpy.asarray`` takes: lists, arrays, tensors, tables.

Entries count by position; the index of a pandas object is ignored.
"""

import warnings

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainables.errors import InvalidInput, counted


def numbers(given: object, name: str) -> Tensor:
    """Return real numbers as a tensor, detached.

    Raises:
        InvalidInput: ``given`` holds something else; the sentence begins with ``name``.
    """
    if isinstance(given, Tensor):
        given = _dense(given)
        if not given.is_complex():
            return given
    array = _array(given, name)
    if array.dtype.kind == "O":  # a column of arrays, or a table with columns of several types
        try:
            array = np.asarray(array.tolist(), dtype=np.float64)
        except Exception:
            raise _no_numbers(name, given, array) from None
    if array.dtype.kind not in "biuf":
        raise _no_numbers(name, given, array)
    if array.itemsize > 8 or array.dtype in (np.uint16, np.uint32, np.uint64):  # types that torch lacks in part
        array = array.astype(np.float64)
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    return torch.from_numpy(np.require(native, requirements=["C", "W"]))


def number(given: object, name: str) -> float:
    """Return one real number, also that of an array with one entry.

    Raises:
        InvalidInput: ``given`` is something else; the sentence begins with ``name``.
    """
    found = numbers(given, name)
    if found.numel() != 1 or given is None or isinstance(given, list | tuple):
        raise InvalidInput(f"{name} must be one number.")
    return float(found)


def classes(given: object, name: str) -> Tensor:
    """Return the class of each entry as an int64 tensor: whole numbers as they are, others numbered.

    Raises:
        InvalidInput: an entry is missing (NaN, None), or is no text, number, date or other hashable object.
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
    entries = array.ravel().tolist()
    if missing := [row for row, entry in enumerate(entries) if _is_missing(entry)]:
        raise InvalidInput(
            f"{name}: {counted(len(missing), 'entry', 'entries')} missing (NaN or None), the first in row "
            f"{missing[0]}; remove these items, or give them a class."
        )
    try:
        numbered = {entry: number for number, entry in enumerate(dict.fromkeys(entries))}
    except TypeError:
        raise InvalidInput(f"{name} must be one text or number for each item; they are {array.dtype}.") from None
    return torch.tensor([numbered[entry] for entry in entries], dtype=torch.int64).reshape(array.shape)


def mask(given: object, name: str) -> Tensor:
    """Return a bool tensor.

    Raises:
        InvalidInput: an entry is neither true nor false, 1 nor 0.
    """
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


def _no_numbers(name: str, given: object, array: NDArray[np.generic]) -> InvalidInput:
    return InvalidInput(f"{name} must be real numbers; they are {type(given).__name__} of {array.dtype}.")


def _is_missing(entry: object) -> bool:
    try:
        return entry is None or bool(entry != entry)
    except Exception:  # pandas.NA is neither equal nor unequal
        return True
