"""Single ONNX operators over numbers at the edges, and the results that docs/edges.md promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnxruntime
from onnx import NodeProto, helper, numpy_helper

NODE = helper.make_node
OPSET = 17
NAN, INF = np.nan, np.inf
MOST = float(np.finfo(np.float32).max)
FLOATS = np.array(
    (
        "nan inf -inf 0 -0.0 3.4028235e38 -3.4028235e38 1e-45 -1e-45 1 -1 0.5 -0.5 1.5 2.5 -2.5 127.5 128 -129 255.5 "
        "256 300 -300 65536 2147483520 2147483648 4294967296 -2147483648 9.2233714e18 9.223372e18 1e20 -1e20 1000"
    ).split(),
    np.float32,
)
FEW = np.array([NAN, INF, -INF, 0.0, 1, -1, 0.5, 3, MOST, NAN], np.float32)
LEFT, RIGHT = (grid.reshape(-1).copy() for grid in np.meshgrid(FEW, FEW, indexing="ij"))
# Rows with NaN or an infinity first, in the middle and last; rows of one number only.
ROWS = np.array(
    [[value if i == place else i % 4 for i in range(9)] for place in (0, 4, 8) for value in (NAN, INF, -INF)]
    + [[NAN] * 9, [INF] * 9, [-INF] * 9, [0] * 9],
    np.float32,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class EdgeCase:
    """expected: one array per output; without it, onnxruntime's."""

    name: str
    node: NodeProto
    inputs: Mapping[str, np.ndarray]
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    expected: Sequence[np.ndarray] | None = None

    def results(self) -> list[np.ndarray]:
        if self.expected is not None:
            return list(self.expected)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        model = model_of([self]).SerializeToString()
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return session.run(None, {f"{self.name}_{name}": array for name, array in self.inputs.items()})

    def outputs(self) -> list[str]:
        return [f"{self.name}_{name}" for name in self.node.output]


def model_of(cases: Sequence[EdgeCase]) -> onnx.ModelProto:
    """All cases side by side; the tensors of each have its name before theirs."""
    nodes, inputs, constants, outputs = [], [], [], []
    for case in cases:
        node = onnx.NodeProto()
        node.CopyFrom(case.node)
        node.name = case.name
        for names in (node.input, node.output):
            for index, name in enumerate(names):
                names[index] = f"{case.name}_{name}" if name else ""
        nodes.append(node)
        inputs += [
            helper.make_tensor_value_info(
                f"{case.name}_{name}", helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in case.inputs.items()
        ]
        constants += [numpy_helper.from_array(array, f"{case.name}_{name}") for name, array in case.constants.items()]
        outputs += [onnx.ValueInfoProto(name=name) for name in case.outputs()]
    graph = helper.make_graph(nodes, "edges", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph.output
    del model.graph.output[:]
    model.graph.output.extend(inferred)
    return model


def _unary(op: str, x: np.ndarray = FLOATS, expected: np.ndarray | None = None, **attributes: object) -> EdgeCase:
    suffix = "" if x.dtype == np.float32 else f"_{x.dtype}"
    node = NODE(op, ["x"], ["y"], **attributes)
    name = "_".join([op + suffix, *(str(value) for value in attributes.values() if isinstance(value, int))])
    return EdgeCase(name=name, node=node, inputs={"x": x}, expected=None if expected is None else [expected])


def _integers(dtype: str) -> list[EdgeCase]:
    limits = np.iinfo(dtype)
    numbers = np.array([limits.min, limits.max, -1, 0, 1, 2, -7, 7], dtype)
    a, b = (grid.reshape(-1).copy() for grid in np.meshgrid(numbers, numbers, indexing="ij"))
    with np.errstate(all="ignore"):
        exact = [
            0 if q == 0 else abs(int(p)) // abs(int(q)) * (1 if (p < 0) == (q < 0) else -1)
            for p, q in zip(a, b, strict=True)
        ]
    divided = np.array([_wrapped(value, limits.bits) for value in exact], dtype)
    remainder = [0 if q == 0 else int(p) - v * int(q) for p, q, v in zip(a, b, exact, strict=True)]
    floored = [r + int(q) if r and (r < 0) != (q < 0) else r for r, q in zip(remainder, b, strict=True)]
    results = {
        "Add": a + b,
        "Sub": a - b,
        "Mul": a * b,
        "Div": divided,
    }
    pairs = {"a": a, "b": b}
    return [
        *(
            EdgeCase(name=f"{op}_{dtype}", node=NODE(op, ["a", "b"], ["y"]), inputs=pairs, expected=[y])
            for op, y in results.items()
        ),
        *(
            EdgeCase(
                name=f"Mod{fmod}_{dtype}", node=NODE("Mod", ["a", "b"], ["y"], fmod=fmod), inputs=pairs,
                expected=[np.array(y, dtype)],
            )
            for fmod, y in ((0, floored), (1, remainder))
        ),
        _unary("Abs", numbers),
        _unary("Neg", numbers),
        EdgeCase(
            name=f"ReduceSum_{dtype}", node=NODE("ReduceSum", ["x"], ["y"], keepdims=0),
            inputs={"x": numbers[[1, 1, 5]]}, expected=[numbers[[1, 1, 5]].sum(dtype=dtype)],
        ),
        EdgeCase(
            name=f"CumSum_{dtype}", node=NODE("CumSum", ["x", "axis"], ["y"]), inputs={"x": numbers[[1, 1, 5]]},
            constants={"axis": np.array(0)}, expected=[numbers[[1, 1, 5]].cumsum(dtype=dtype)],
        ),
        EdgeCase(
            name=f"MatMul_{dtype}", node=NODE("MatMul", ["a", "b"], ["y"]),
            inputs={"a": numbers.reshape(2, 4), "b": numbers.reshape(4, 2)},
            expected=[numbers.reshape(2, 4) @ numbers.reshape(4, 2)],
        ),
    ]  # fmt: skip


def _wrapped(value: int, bits: int) -> int:
    return (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


def _pair(op: str) -> EdgeCase:
    return EdgeCase(name=op, node=NODE(op, ["a", "b"], ["y"]), inputs={"a": LEFT, "b": RIGHT})


def _cast(source: np.ndarray, target: str) -> EdgeCase:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(target))
    node = NODE("Cast", ["x"], ["y"], to=kind)
    return EdgeCase(name=f"Cast_{source.dtype}_{target}", node=node, inputs={"x": source})


def _quantize(dtype: str) -> EdgeCase:
    constants = {"scale": np.float32(0.5), "zero": np.array(3, dtype)}
    return EdgeCase(
        name=f"QuantizeLinear_{dtype}", node=NODE("QuantizeLinear", ["x", "scale", "zero"], ["y"]),
        inputs={"x": FLOATS}, constants=constants,
    )  # fmt: skip


def _dynamic(name: str, x: Sequence[float]) -> EdgeCase:
    node = NODE("DynamicQuantizeLinear", ["x"], ["y", "scale", "zero"])
    return EdgeCase(name=f"Dynamic_{name}", node=node, inputs={"x": np.array(x, np.float32)})


def _power() -> EdgeCase:
    base = np.array([0, 0, 0, 1, 1, -1, -1, -1, 2, 2, 2, 3, -2, -3, 2], np.int32)
    exponent = np.array([0, 64, -1, 1000, -5, 1001, -3, -4, 64, -1, 31, 2, 3, 3, 10], np.int32)
    least = np.iinfo(np.int32).min
    expected = np.array([1, 0, least, 1, 1, -1, -1, 1, 0, 0, least, 9, -8, -27, 1024], np.int32)
    return EdgeCase(
        name="Pow_int32", node=NODE("Pow", ["a", "b"], ["y"]), inputs={"a": base, "b": exponent}, expected=[expected]
    )


CASES = [
    *(_unary(op) for op in "Relu LeakyRelu Sign Round Sqrt Exp Sigmoid Tanh HardSwish ThresholdedRelu".split()),
    *(_pair(op) for op in "Pow Max Min Less".split()),
    EdgeCase(
        name="Clip", node=NODE("Clip", ["x", "low", "high"], ["y"]), inputs={"x": FLOATS},
        constants={"low": np.float32(-1), "high": np.float32(6)},
    ),
    EdgeCase(
        name="PRelu", node=NODE("PRelu", ["x", "slope"], ["y"]), inputs={"x": FLOATS.reshape(1, 3, -1)},
        constants={"slope": np.array([0.25, -2, 0.5], np.float32).reshape(3, 1)},
    ),
    *(
        EdgeCase(
            name=f"Clip_crossed_{x.dtype}", node=NODE("Clip", ["x", "low", "high"], ["y"]), inputs={"x": x},
            constants={"low": x.dtype.type(5), "high": x.dtype.type(2)},
        )
        for x in (FLOATS[3:], np.arange(9, dtype=np.uint8), np.arange(-9, 9, dtype=np.int32))
    ),
    EdgeCase(
        name="Max_number", node=NODE("Max", ["low", "x"], ["y"]), inputs={"x": FLOATS},
        constants={"low": np.float32(0.25)},
    ),
    *(_unary(op, ROWS, axes=[1]) for op in ("ReduceMax", "ReduceMin", "ReduceMean", "ReduceL2")),
    *(
        _unary(op, ROWS, axis=1, select_last_index=last) for op in ("ArgMax", "ArgMin") for last in (0, 1)
    ),
    *(_unary(op, ROWS, axis=1) for op in ("Softmax", "LogSoftmax")),
    _unary("MaxPool", np.tile(ROWS, (1, 1, 4, 4)), kernel_shape=[3, 3]),
    _unary("AveragePool", np.tile(ROWS, (1, 1, 2, 2)), kernel_shape=[3, 3]),
    _unary("GlobalAveragePool", np.tile(ROWS, (1, 1, 1, 1))),
    EdgeCase(
        name="Gemm_alpha_inf", node=NODE("Gemm", ["x", "w", "c"], ["y"], alpha=INF, beta=2.0),
        inputs={"x": np.arange(8, dtype=np.float32).reshape(2, 4) + 1},
        constants={"w": np.array([[1, -1, 2]] * 3 + [[-1, 9, 0]], np.float32), "c": np.ones(3, np.float32)},
    ),
    EdgeCase(
        name="Gemm_beta_0", node=NODE("Gemm", ["x", "w", "c"], ["y"], beta=0.0, alpha=0.5),
        inputs={"x": np.arange(8, dtype=np.float32).reshape(2, 4)},
        constants={"w": np.ones((4, 3), np.float32), "c": np.array([NAN, INF, 1], np.float32)},
    ),
    *(_quantize(dtype) for dtype in ("int8", "uint8")),
    _dynamic("zeros", [0] * 6),
    _dynamic("nan", [1, 2, NAN, -3]),
    _dynamic("infinite", [-INF, 1, INF, -3]),
    _dynamic("tiny", [1e-45, 0, 0, 1e-44]),
    *(_cast(FLOATS, target) for target in "int8 uint8 int16 int32 uint32 int64 uint64 bool".split()),
    *(_cast(FLOATS.astype(np.float64), target) for target in ("int32", "uint32", "int64")),
    *_integers("int32"),
    *(case for case in _integers("int64") if case.node.op_type in ("Mul", "Div", "Mod", "Abs")),
    *(case for case in _integers("int8") if case.node.op_type in ("Mul", "Div", "Abs")),
    _power(),
]  # fmt: skip
