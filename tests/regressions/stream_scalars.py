"""A streamed input without axes: running the package ended in a ValueError.

numpy's ascontiguousarray gives a scalar an axis, which the port does not have.
"""

from __future__ import annotations

from onnx.helper import make_node as NODE

from benchmarks.fuzzing.specimen import ModelSpecimen
from tests.support.onnx_models import model_of

EXPECTED = "compiled and agrees"


def specimen() -> ModelSpecimen:
    nodes = [NODE("Div", ["x", "scalar"], ["y"]), NODE("Neg", ["scalar"], ["z"])]
    model = model_of(nodes, {"x": (2,), "scalar": ()}, ["y", "z"])
    options = {"verify": (), "io": "stream"}
    return ModelSpecimen(model=model.SerializeToString(), options=options, is_valid=True)
