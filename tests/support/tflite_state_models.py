"""TensorFlow Lite models that keep something between runs: variables, layers over time, SVDF, LSTM."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tflite

from tests.support.tflite_file import Quantized, TfliteWriter
from tests.support.tflite_models import RELU, VALID, Network


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
    units: int = 3,
    memory: int = 4,
    activation: int = RELU,
    changed: Mapping[int, dict[str, object]] | None = None,
    scale: float = 0.05,
) -> bytes:
    """SVDF of 6 values: float, or int8 with a state of int8 or int16. changed: of its inputs, by place."""
    random, net, filters = np.random.default_rng(memory), TfliteWriter(), units * rank
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
        {"name": "bias", "array": values((units,), wide, 500), "quantized": Quantized(scale=bias_scale)},
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
    y = net.tensor("y", (batch, units), small, scales)
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
    channels: int = 5,
    units: int = 4,
    changed: Mapping[int, dict[str, object]] | None = None,
    **options: int,
) -> bytes:
    """An LSTM of `channels` values to `units`: float, or int8 with a cell of int16.

    changed: of its inputs, by place; 24: output.
    """
    random, net = np.random.default_rng(steps), TfliteWriter()
    small, wide, cell = ("int8", "int32", "int16") if int8 else ("float32", "float32", "float32")

    def values(*shape: int, limit: int) -> np.ndarray:
        drawn = random.integers(-limit, limit + 1, shape) if int8 else random.standard_normal(shape)
        return drawn.astype(small if limit == 127 else wide)

    shape = (steps, batch) if time_major else (batch, steps)
    hidden = Quantized(scale=0.0078, zero_point=-3)
    ports: dict[int, dict[str, object]] = {
        0: {"name": "x", "shape": (*shape, channels), "dtype": small, "quantized": Quantized(scale=0.03, zero_point=5)},
        **{place: {"name": f"w{place}", "array": values(units, channels if place < 5 else units, limit=127),
                   "quantized": Quantized(scale=0.01 + 0.001 * place)} for place in range(1, 9)},
        **{place: {"name": f"b{place}", "array": values(units, limit=500), "quantized": Quantized(scale=0.0003)}
           for place in range(12, 16)},
        18: {"name": "hidden", "shape": (batch, units), "dtype": small, "is_variable": True, "quantized": hidden},
        19: {"name": "cell", "shape": (batch, units), "dtype": cell, "is_variable": True,
             "quantized": Quantized(scale=cell_scale)},
        24: {"name": "y", "shape": (*shape, units), "dtype": small, "quantized": hidden},
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
