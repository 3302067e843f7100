"""ONNX programs, most of them hostile, that take vectors of 8 numbers; made node by node."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

NUMBERS = 8


def model(nodes: Sequence[onnx.NodeProto], constants: dict[str, np.ndarray], **changes: Any) -> onnx.ModelProto:
    """Return the model of ``nodes`` from ``x`` to ``y``."""
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    given, made = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", ["batch", NUMBERS]), ("y", ["items", "width"]))
    )
    graph = helper.make_graph(nodes, "graph", [given], [made], tensors)
    return helper.make_model(graph, ir_version=9, **{"opset_imports": [helper.make_opsetid("", 18)], **changes})


def program(*nodes: onnx.NodeProto, **constants: np.ndarray) -> bytes:
    return model(nodes, constants).SerializeToString()


def node(kind: str, *inputs: str, to: str = "y", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, inputs, [to], **attributes)


def projection(width: int = 4) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((NUMBERS, width)).astype(np.float32)


def plain() -> bytes:
    """Return a program as a network of one layer has it."""
    return program(node("MatMul", "x", "w"), w=projection())


def elsewhere(tensor: onnx.TensorProto, path: str) -> onnx.TensorProto:
    """Return ``tensor`` with its numbers in the file at ``path``."""
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=path)
    return tensor


def external(path: str) -> bytes:
    made = model([node("MatMul", "x", "w")], {"w": projection()})
    elsewhere(made.graph.initializer[0], path)
    return made.SerializeToString()


def external_constant(path: str) -> bytes:
    tensor = elsewhere(numpy_helper.from_array(projection(), "w"), path)
    return program(node("Constant", to="w", value=tensor), node("MatMul", "x", "w"))


WITH_EVIL = [helper.make_opsetid("", 18), helper.make_opsetid("evil", 1)]


def other_domain() -> bytes:
    secret = helper.make_node("Secret", ["x"], ["y"], domain="evil")
    return model([secret], {}, opset_imports=WITH_EVIL).SerializeToString()


def function() -> bytes:
    """Return a program that defines an operator itself."""
    add, twice = node("Add", "a", "a", to="b"), helper.make_node("Twice", ["x"], ["y"], domain="evil")
    body = helper.make_function("evil", "Twice", ["a"], ["b"], [add], WITH_EVIL[:1])
    return model([twice], {}, opset_imports=WITH_EVIL, functions=[body]).SerializeToString()


def two_outputs() -> bytes:
    made = model([node("Abs", "x"), node("Neg", "x", to="z")], {})
    made.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, ["items", "width"]))
    return made.SerializeToString()


def sparse() -> bytes:
    """Return a program with a sparse weight of 10**12 numbers."""
    made = model([node("MatMul", "x", "w")], {})
    values = numpy_helper.from_array(np.ones(1, np.float32), "w")
    places = numpy_helper.from_array(np.zeros(1, np.int64), "w_indices")
    made.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [NUMBERS, 10**11]))
    return made.SerializeToString()


def huge(gigabytes: int) -> bytes:
    """Return a small program that needs ``gigabytes`` of memory."""
    size = gigabytes * 250_000_000 // NUMBERS
    big, most = node("Expand", "one", "shape", to="big"), node("ReduceMax", "big", to="m", keepdims=0)
    return program(big, most, node("Add", "x", "m"), one=np.ones(1, np.float32), shape=np.array([NUMBERS, size]))


def wide(width: int) -> bytes:
    nodes = node("ReduceMax", "x", "axes", to="m"), node("Tile", "m", "times")
    return program(*nodes, axes=np.array([1]), times=np.array([1, width]))


def mixing() -> bytes:
    """Return a program in which an embedding depends on the other items of its batch."""
    return program(node("ReduceMean", "x", "axes", to="m"), node("Sub", "x", "m"), axes=np.array([0]))
