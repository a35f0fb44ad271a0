"""Rows that are taken from below the first one, streamed: their plan was rejected.

A slice from row 1 on was asked for input rows as if row h read row h, so its sequence ran before the row was there.
"""

from __future__ import annotations

import numpy as np
from onnx.helper import make_node as NODE

from benchmarks.fuzzing.specimen import ModelSpecimen
from tests.support.onnx_models import model_of

EXPECTED = "compiled and agrees"


def specimen() -> ModelSpecimen:
    nodes = [NODE("Slice", ["x", "begin", "end", "axis", "step"], ["y"])]
    constants = {"begin": np.array([1]), "end": np.array([10_000]), "axis": np.array([1]), "step": np.array([2])}
    model = model_of(nodes, {"x": (1, 8, 9, 8)}, ["y"], constants)
    options = {"verify": (), "io": "stream"}
    return ModelSpecimen(
        model=model.SerializeToString(), options=options, is_valid=True, checks=("poison", "sanitizers")
    )
