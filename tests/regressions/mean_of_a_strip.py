"""A mean that drops its axes, in less memory than it takes: patches asked for the columns of its result, IndexError.

Found by `benchmarks/fuzz.py --seed 106 --case 220`.
"""

from __future__ import annotations

import numpy as np

from benchmarks.fuzzing.specimen import ModelSpecimen
from tests.support.tflite_file import TfliteWriter

EXPECTED = "compiled and agrees"


def specimen() -> ModelSpecimen:
    writer = TfliteWriter()
    image = writer.input("image", (1, 3, 3, 16))
    axes = writer.constant("axes", np.array([1, 2], np.int32))
    mean = writer.operator("MEAN", [image, axes], writer.tensor("mean", (1, 16)), "ReducerOptions", KeepDims=False)
    return ModelSpecimen(
        model=writer.finish([mean]), suffix=".tflite", options={"verify": ()}, ram_part=0.7, is_valid=True
    )
