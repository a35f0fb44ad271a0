"""Models that keep something from one run to the next, in every form in which files bring it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import tflite
from onnx import TensorProto

from tests.support.onnx_models import NODE, model_of, weights
from tests.support.tflite_file import Quantized, TfliteWriter
from tests.support.tflite_models import RELU, VALID, Network

HIDDEN, FEATURES = 16, 24


def voice_detector() -> onnx.ModelProto:
    """A detector like Silero's: convolutions over one chunk, an LSTM whose state goes in and comes out, a probability.

    x float32[1, 1, 64], h and c float32[1, 1, 16] -> probability float32[1, 1], hn, cn.
    """
    nodes = [
        NODE("Conv", ["x", "w1", "b1"], ["c1"], name="stft", strides=[8], pads=[4, 4], kernel_shape=[16]),
        NODE("Relu", ["c1"], ["r1"], name="relu_1"),
        NODE("Conv", ["r1", "w2", "b2"], ["c2"], name="encoder", strides=[2], pads=[1, 1], kernel_shape=[3]),
        NODE("Relu", ["c2"], ["r2"], name="relu_2"),
        NODE("ReduceMean", ["r2"], ["m"], name="mean", axes=[2], keepdims=0),
        NODE("Unsqueeze", ["m", "front"], ["sequence"], name="step"),
        NODE("LSTM", ["sequence", "w", "r", "b", "", "h", "c"], ["", "hn", "cn"], name="decoder", hidden_size=HIDDEN),
        NODE("Squeeze", ["hn", "front"], ["flat"], name="last"),
        NODE("Gemm", ["flat", "wo", "bo"], ["logit"], name="head", transB=1),
        NODE("Sigmoid", ["logit"], ["probability"], name="sigmoid"),
    ]
    constants = {
        "w1": weights(12, 1, 16), "b1": weights(12, seed=1), "w2": weights(FEATURES, 12, 3, seed=2),
        "b2": weights(FEATURES, seed=3), "front": np.array([0], np.int64),
        "w": weights(1, 4 * HIDDEN, FEATURES, seed=4) * 4, "r": weights(1, 4 * HIDDEN, HIDDEN, seed=5) * 4,
        "b": weights(1, 8 * HIDDEN, seed=6), "wo": weights(1, HIDDEN, seed=7), "bo": weights(1, seed=8),
    }  # fmt: skip
    state = (1, 1, HIDDEN)
    return model_of(nodes, {"x": (1, 1, 64), "h": state, "c": state}, ["probability", "hn", "cn"], constants)


def gate() -> onnx.ModelProto:
    """A GRU whose state goes in and comes out, and a dense layer: x float32[1, 1, 6], h float32[1, 1, 5] -> y, hn."""
    nodes = [
        NODE("GRU", ["x", "w", "r", "b", "", "h"], ["", "hn"], name="gru", hidden_size=5, linear_before_reset=1),
        NODE("Squeeze", ["hn", "front"], ["flat"], name="last"),
        NODE("Gemm", ["flat", "wo", "bo"], ["y"], name="head", transB=1),
    ]
    constants = {
        "w": weights(1, 15, 6, seed=1) * 2, "r": weights(1, 15, 5, seed=2) * 2, "b": weights(1, 30, seed=3),
        "front": np.array([0], np.int64), "wo": weights(3, 5, seed=4), "bo": weights(3, seed=5),
    }  # fmt: skip
    return model_of(nodes, {"x": (1, 1, 6), "h": (1, 1, 5)}, ["y", "hn"], constants)


def delays() -> onnx.ModelProto:
    """A filter of three taps, its line of delays as states: one is the other's next value.

    x, z1, z2 float32[1, 8] -> y, z1.next, z2.next float32[1, 8].
    """
    nodes = [
        NODE("Mul", ["x", "a0"], ["p0"]),
        NODE("Mul", ["z1", "a1"], ["p1"]),
        NODE("Mul", ["z2", "a2"], ["p2"]),
        NODE("Add", ["p0", "p1"], ["s"]),
        NODE("Add", ["s", "p2"], ["y"]),
        NODE("Identity", ["x"], ["z1.next"]),
        NODE("Identity", ["z1"], ["z2.next"]),
    ]
    constants = {f"a{tap}": np.float32(0.5 + tap) for tap in range(3)}
    port = (1, 8)
    return model_of(nodes, {"x": port, "z1": port, "z2": port}, ["y", "z1.next", "z2.next"], constants)


def swapped() -> onnx.ModelProto:
    """Two states that change places in each run, which no order of copies does."""
    nodes = [
        NODE("Add", ["x", "a"], ["y"]),
        NODE("Identity", ["b"], ["a.next"]),
        NODE("Identity", ["a"], ["b.next"]),
    ]
    port = (1, 5)
    return model_of(nodes, {"x": port, "a": port, "b": port}, ["y", "a.next", "b.next"])


def counter() -> onnx.ModelProto:
    """A number that each run adds to, and gives as an output too."""
    nodes = [NODE("Add", ["count", "x"], ["count.next"]), NODE("Mul", ["count.next", "two"], ["y"])]
    ports: dict[str, tuple[tuple[int, ...], int]] = {name: ((1, 3), TensorProto.INT32) for name in ("x", "count")}
    return model_of(nodes, ports, [("y", TensorProto.INT32), ("count.next", TensorProto.INT32)],
                    {"two": np.array(2, np.int32)})  # fmt: skip


def integrator() -> onnx.ModelProto:
    """A slow mean of what comes in, which a coarse state never reaches: x, h float32[1, 8] -> y, h.next."""
    nodes = [
        NODE("Mul", ["h", "most"], ["kept"]),
        NODE("Mul", ["x", "little"], ["added"]),
        NODE("Add", ["kept", "added"], ["h.next"]),
        NODE("Mul", ["h.next", "two"], ["y"]),
    ]
    constants = {"most": np.float32(0.995), "little": np.float32(0.005), "two": np.float32(2)}
    return model_of(nodes, {"x": (1, 8), "h": (1, 8)}, ["y", "h.next"], constants)


def growing() -> onnx.ModelProto:
    """A sum of all that came in: x, h float32[1, 8] -> y, h.next."""
    nodes = [NODE("Add", ["h", "x"], ["h.next"]), NODE("Relu", ["h.next"], ["y"])]
    return model_of(nodes, {"x": (1, 8), "h": (1, 8)}, ["y", "h.next"])


def set_to_constant() -> onnx.ModelProto:
    """A state that is read in the first run only: each run leaves the same in it."""
    nodes = [NODE("Add", ["x", "h"], ["y"]), NODE("Identity", ["three"], ["h.next"])]
    return model_of(nodes, {"x": (1, 4), "h": (1, 4)}, ["y", "h.next"], {"three": np.full((1, 4), 3, np.float32)})


def frames(*, channels: int = 8, rows: int = 5, pushed: int = 1, then: str = "Conv") -> onnx.ModelProto:
    """A convolution over a window of frames, of which each run brings `pushed` new ones; NCHW, frames are rows."""
    kept = rows - pushed
    if then == "Conv":
        last = NODE("Conv", ["window", "w"], ["y"], kernel_shape=[rows, 1])
        constants = {"w": weights(6, channels, rows, 1, seed=3)}
    else:
        last = NODE("ReduceMax", ["window"], ["y"], axes=[2], keepdims=1)
        constants = {}
    nodes = [
        NODE("Relu", ["x"], ["r"]),
        NODE("Concat", ["before", "r"], ["window"], axis=2),
        last,
        NODE("Slice", ["window", "begin", "end", "axis"], ["before.next"]),
    ]
    constants |= {
        "begin": np.array([pushed], np.int64), "end": np.array([rows], np.int64), "axis": np.array([2], np.int64)
    }  # fmt: skip
    ports = {"x": (1, channels, pushed, 1), "before": (1, channels, kept, 1)}
    return model_of(nodes, ports, ["y", "before.next"], constants)


def handle(writer: TfliteWriter, name: str) -> int:
    """A resource variable of a TensorFlow Lite graph."""
    tensor = writer.tensor(f"handle of {name}", (), "resource")
    return writer.operator("VAR_HANDLE", [], tensor, "VarHandleOptions", Container="", SharedName=name)


def set_once(name: str, begins: np.ndarray, quantized: Quantized | None = None) -> TfliteWriter:
    """A subgraph that gives a variable its first value."""
    writer = TfliteWriter()
    value = writer.constant(f"{name} begins", begins, quantized)
    assign(writer, handle(writer, name), value)
    return writer


def assign(writer: TfliteWriter, variable: int, value: int) -> None:
    writer.operators.append((_code(writer, "ASSIGN_VARIABLE"), [variable, value], [], "", {}))


def call_once(writer: TfliteWriter) -> None:
    """Runs the second subgraph before the first inference."""
    writer.operators.append((_code(writer, "CALL_ONCE"), [], [], "CallOnceOptions", {"InitSubgraphIndex": 1}))


def _code(writer: TfliteWriter, name: str) -> int:
    code = getattr(tflite.BuiltinOperator, name)
    if code not in writer.codes:
        writer.codes.append(code)
    return writer.codes.index(code)


def streaming_layer(
    *, int8: bool = True, rows: int = 5, pushed: int = 1, begins: np.ndarray | None = None, reads: int = 1
) -> bytes:
    """A convolution over a window of frames, the older ones in a resource variable; NHWC, frames are rows.

    begins: value of the variable before the first run, which CALL_ONCE sets; None leaves it unset. reads: how often the
    variable is read, the last time behind its assignment.
    """
    net = Network(int8=int8, seed=rows)
    writer, kept = net.writer, rows - pushed
    scales = net.scales()
    source = writer.input("frames", (1, pushed, 1, 8), net.dtype, scales)
    writer.inputs = [source]
    if begins is not None:
        call_once(writer)
    variable = handle(writer, "stream/states")
    before = writer.tensor("before", (1, kept, 1, 8), net.dtype, scales)
    writer.operator("READ_VARIABLE", [variable], before)
    window = writer.tensor("window", (1, rows, 1, 8), net.dtype, scales)
    writer.operator("CONCATENATION", [before, source], window, "ConcatenationOptions", Axis=1)
    following = writer.tensor("following", (1, kept, 1, 8), net.dtype, scales)
    ends = [writer.constant(name, np.array(values, np.int32)) for name, values in
            (("begin", [0, pushed, 0, 0]), ("size", [1, kept, 1, 8]))]  # fmt: skip
    writer.operator("SLICE", [window, *ends], following)
    assign(writer, variable, following)
    outputs = [net.conv(window, 6, (rows, 1), "conv", padding=VALID)]
    for again in range(1, reads):
        seen = writer.tensor(f"seen_{again}", (1, kept, 1, 8), net.dtype, scales)
        writer.operator("READ_VARIABLE", [variable], seen)
        outputs.append(net.conv(seen, 4, (kept, 1), f"conv_{again}", padding=VALID))
    others = [] if begins is None else [set_once("stream/states", begins, scales)]
    return writer.finish(outputs, others=others)


def over_time(*, padding: int = VALID) -> bytes:
    """int8[1, 12, 1, 8]: convolutions and a depthwise one over frames, a dense layer over what is left of them."""
    net = Network(int8=True, seed=padding + 3)
    x = net.input((1, 12, 1, 8), "frames")
    y = net.conv(x, 16, (3, 1), "first", padding=padding, activation=RELU)
    z = net.depthwise(y, (4, 1), "second", padding=padding)
    flat = net.reshape(z, (1, int(np.prod(net.shape(z)))), "flat")
    return net.writer.finish([net.dense(flat, 3, "head")])


def svdf(
    *,
    state: str = "float32",
    batch: int = 1,
    rank: int = 2,
    memory: int = 4,
    activation: int = RELU,
    changed: Mapping[int, dict[str, object]] | None = None,
    scale: float = 0.05,
) -> bytes:
    """SVDF of 6 values to 3 units: float, or int8 with a state of int8 or int16. changed: of its inputs, by place."""
    random, net, filters = np.random.default_rng(memory), TfliteWriter(), 3 * rank
    is_float = state == "float32"
    weight_scale = {"float32": 1.0, "int8": 0.02, "int16": 0.0004}[state]
    state_scale = {"float32": 1.0, "int8": 0.03, "int16": 0.0008}[state]
    most = {"float32": 1, "int8": 127, "int16": 3000}[state]

    def values(shape: tuple[int, ...], dtype: str, limit: int) -> np.ndarray:
        drawn = random.standard_normal(shape) if is_float else random.integers(-limit, limit + 1, shape)
        return drawn.astype(dtype)

    small, wide = ("float32", "float32") if is_float else ("int8", "int32")
    bias_scale = float(np.float32(state_scale) * np.float32(weight_scale))
    ports: list[dict[str, object]] = [
        {"name": "x", "shape": (batch, 6), "dtype": small, "quantized": Quantized(scale=scale, zero_point=3)},
        {"name": "feature", "array": values((filters, 6), small, 127), "quantized": Quantized(scale=0.01)},
        {"name": "time", "array": values((filters, memory), state, most), "quantized": Quantized(scale=weight_scale)},
        {"name": "bias", "array": values((3,), wide, 500), "quantized": Quantized(scale=bias_scale)},
        {"name": "kept", "shape": (batch, filters * memory), "dtype": state, "is_variable": True,
         "quantized": Quantized(scale=state_scale)},
    ]  # fmt: skip
    inputs: list[int] = []
    for place, port in enumerate(ports):
        port |= {"quantized": None} if is_float else {}
        port |= (changed or {}).get(place, {})
        maker = net.constant if "array" in port else net.input if place == 0 else net.tensor
        inputs.append(maker(**port))  # type: ignore[operator, arg-type]
    scales = None if is_float else Quantized(scale=0.07, zero_point=-128 if activation == RELU else 5)
    y = net.tensor("y", (batch, 3), small, scales)
    net.operator("SVDF", inputs, y, "SVDFOptions", Rank=rank, FusedActivationFunction=activation)
    return net.finish([y])


def lstm(
    *,
    int8: bool = False,
    steps: int = 1,
    batch: int = 1,
    time_major: bool = False,
    clip: float = 0.0,
    cell_scale: float = 2.0**-11,
    changed: Mapping[int, dict[str, object]] | None = None,
    **options: int,
) -> bytes:
    """An LSTM of 5 values to 4: float, or int8 with a cell of int16. changed: of its inputs, by place; 24: output."""
    random, net = np.random.default_rng(steps), TfliteWriter()
    small, wide, cell = ("int8", "int32", "int16") if int8 else ("float32", "float32", "float32")

    def values(*shape: int, limit: int) -> np.ndarray:
        drawn = random.integers(-limit, limit + 1, shape) if int8 else random.standard_normal(shape)
        return drawn.astype(small if limit == 127 else wide)

    shape = (steps, batch) if time_major else (batch, steps)
    hidden = Quantized(scale=0.0078, zero_point=-3)
    ports: dict[int, dict[str, object]] = {
        0: {"name": "x", "shape": (*shape, 5), "dtype": small, "quantized": Quantized(scale=0.03, zero_point=5)},
        **{place: {"name": f"w{place}", "array": values(4, 5 if place < 5 else 4, limit=127),
                   "quantized": Quantized(scale=0.01 + 0.001 * place)} for place in range(1, 9)},
        **{place: {"name": f"b{place}", "array": values(4, limit=500), "quantized": Quantized(scale=0.0003)}
           for place in range(12, 16)},
        18: {"name": "hidden", "shape": (batch, 4), "dtype": small, "is_variable": True, "quantized": hidden},
        19: {"name": "cell", "shape": (batch, 4), "dtype": cell, "is_variable": True,
             "quantized": Quantized(scale=cell_scale)},
        24: {"name": "y", "shape": (*shape, 4), "dtype": small, "quantized": hidden},
    }  # fmt: skip
    tensors: dict[int, int] = {}
    for place in range(25):
        if place in ports or place in (changed or {}):
            port = {**ports.get(place, {}), **({} if int8 else {"quantized": None}), **(changed or {}).get(place, {})}
            if port.get("name"):
                maker = net.constant if "array" in port else net.input if place == 0 else net.tensor
                tensors[place] = maker(**port)  # type: ignore[operator, arg-type]
    settings = {"FusedActivationFunction": tflite.ActivationFunctionType.TANH, "CellClip": clip, **options}
    inputs = [tensors.get(place, -1) for place in range(24)]
    net.operator("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, tensors[24], "UnidirectionalSequenceLSTMOptions",
                 TimeMajor=time_major, **settings)  # fmt: skip
    return net.finish([tensors[24]])
