"""A network of values of any rank that grows by nodes of ONNX.

Shapes of what a node makes are onnxruntime's; a node that it refuses is not appended.
"""

from __future__ import annotations

import numpy as np
from onnx import helper

from tests.support.onnx_models import model_of
from tests.support.random_models import Network, Shape
from tvm_ext.verification.reference_runtimes.onnxruntime_runtime import onnx_outputs

OPSET = 17
MOST_ELEMENTS = 10_000
"""Limit for one value."""


class Builder(Network):
    """A network of values of any rank."""

    def any(self) -> str:
        """A value, the newest ones more often."""
        names = list(self.shapes)
        return names[-1 - min(int(self.random.geometric(0.5)) - 1, len(names) - 1)]

    def of_rank(self, *ranks: int) -> str | None:
        names = [name for name, shape in self.shapes.items() if len(shape) in ranks]
        return names[-1 - min(int(self.random.geometric(0.5)) - 1, len(names) - 1)] if names else None

    def node(self, kind: str, inputs: list[str], constants: list[np.ndarray | str], **attributes) -> str | None:
        """Appends a node; None where it is refused, or its output too large. Strings name constants."""
        arrays = [self.constants[c] if isinstance(c, str) else c for c in constants]
        shape = _made_shape(kind, [self.shapes[name] for name in inputs], arrays, attributes)
        if shape is None or not 0 < int(np.prod(shape)) <= MOST_ELEMENTS:
            return None
        fresh = [c for c in constants if not isinstance(c, str)]
        name = self.layer(kind, inputs, shape, fresh, **attributes)
        shared = [c for c in constants if isinstance(c, str)]
        self.nodes[-1].input.extend(shared)
        return name


def _made_shape(kind: str, shapes: list[Shape], constants: list[np.ndarray], attributes: dict) -> Shape | None:
    inputs = [f"x{index}" for index in range(len(shapes))]
    keys = [f"c{index}" for index in range(len(constants))]
    try:
        node = helper.make_node(kind, [*inputs, *keys], ["y"], **attributes)
        model = model_of([node], dict(zip(inputs, shapes, strict=True)), ["y"], dict(zip(keys, constants, strict=True)))
        (found,) = onnx_outputs(model, [{name: np.ones(s, np.float32) for name, s in zip(inputs, shapes, strict=True)}])
    except Exception:  # its exceptions have no common base
        return None
    return found["y"].shape
