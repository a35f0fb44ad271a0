"""Files of one TensorFlow Lite operator each give the bytes of TensorFlow Lite Micro."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path

import numpy as np
import pytest

from benchmarks.tflite_cases import elementwise, layers, movement
from benchmarks.tflite_cases.case import distance_from_real
from codegen_c.kernels.elementwise.qunary import tflite_table
from codegen_c.operators.kinds import Quantization, QUnary, TensorType
from codegen_c.operators.scalar import Instruction, Operand, ScalarProgram
from tests.support.peers import peer
from tests.support.sweeps import some_of
from tests.support.tflite_file import Quantized, TfliteWriter
from tests.support.tflite_models import Network
from tests.support.tflite_runners import referenced, saved_tflite, tflite_micro
from tvm_ext import BuildOptions, build
from tvm_ext.core.errors import UnsupportedModel
from tvm_ext.core.limits import Limits
from tvm_ext.frontends.load import ModelNotice, load
from tvm_ext.frontends.tflite.read_file import read_tflite
from tvm_ext.verification.reference_runtimes.litert_runtime import is_undefined

CASES = {case.name: case for cases in itertools.chain(
    elementwise.CASES.values(), movement.CASES.values(), layers.CASES.values()) for case in cases}  # fmt: skip
# Operators that are converted here, each in the types that it has arithmetic of its own for.
OURS = {
    "float32": (
        "EXPAND_DIMS, SQUEEZE all, FILL, BATCH_TO_SPACE_ND, SPACE_TO_BATCH_ND, MIRROR_PAD SYMMETRIC, "
        "EMBEDDING_LOOKUP, DYNAMIC_UPDATE_SLICE by an input, GATHER batch, QUANTIZE to int16, "
        "CUMSUM exclusive=True reverse=True, BATCH_MATMUL [[2, 3, 4, 6], [6, 5]] {}"
    ),
    "int8": (
        "BATCH_TO_SPACE_ND, SPACE_TO_BATCH_ND, MIRROR_PAD REFLECT, DYNAMIC_UPDATE_SLICE constant, FILL, "
        "GATHER batch, EMBEDDING_LOOKUP, ZEROS_LIKE, PRELU, L2_NORMALIZATION, MAXIMUM constant, SELECT_V2, "
        "SOFTMAX beta, SOFTMAX to int16, EQUAL, GREATER_EQUAL, "
        "SQUARED_DIFFERENCE second repeated, MUL constant, SUB one number, HARD_SWISH, "
        "RESIZE_BILINEAR (3, 7) {'HalfPixelCenters': True}, RESIZE_BILINEAR (8, 12) {'AlignCorners': True}, "
        "RESIZE_NEAREST_NEIGHBOR (3, 7) {'AlignCorners': True}, BATCH_MATMUL [[2, 6, 4], [2, 6, 5]] {'AdjX': True}"
    ),
    "int16x8": (
        "SOFTMAX, LOGISTIC of int16, TANH, PRELU, SQUARED_DIFFERENCE same shape, ADD constant, MAXIMUM same shape, "
        "PADV2, ABS, SELECT_V2, REVERSE_V2, RELU6, BATCH_MATMUL [[2, 3, 4, 6], [6, 5]] {}"
    ),
}


def named(text: str) -> list[str]:
    """Names of cases in a list with commas, which some names have too."""
    names, rest = [], text
    while rest:
        name = max((name for name in CASES if rest == name or rest.startswith(f"{name}, ")), key=len)
        names.append(name)
        rest = rest[len(name) :].removeprefix(", ")
    return names


ALWAYS = [(name, dtype, 1) for dtype, names in OURS.items() for name in named(names)]
SWEEP = [
    (name, dtype, seed) for name, case in CASES.items() for dtype in case.types for seed in (2, 3)
    if (name, dtype, seed) not in ALWAYS
]  # fmt: skip


@pytest.mark.parametrize("chosen", some_of(ALWAYS, sweep=SWEEP), ids=str)
def test_operators(chosen: tuple[str, str, int], tmp_path: Path) -> None:
    name, dtype, seed = chosen
    data, arrays = CASES[name].file(dtype, seed)
    try:
        expected = tflite_micro(data, arrays)
    except RuntimeError:
        pytest.skip("TensorFlow Lite Micro refuses it")
    found, _ = referenced(saved_tflite(data, tmp_path), arrays)
    if CASES[name].real is not None and dtype == "int8":
        pytest.skip("TensorFlow Lite Micro is not exact")
    if expected.dtype == np.float32:
        np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
    else:
        np.testing.assert_array_equal(found[0], expected)


EXACT = [name for name, case in CASES.items() if name.startswith(("ADD_N", "CUMSUM"))]


@pytest.mark.parametrize("name", some_of(["ADD_N", "CUMSUM exclusive=True reverse=True"], sweep=EXACT))
def test_sums_of_bytes_are_exact(name: str, tmp_path: Path) -> None:
    """TensorFlow Lite Micro rounds inputs of ADD_N, and gives the result of CUMSUM its input's scale."""
    case = CASES[name]
    assert case.real is not None
    for seed in range(3):
        data, arrays = case.file("int8", seed)
        found, _ = referenced(saved_tflite(data, tmp_path), arrays)
        assert distance_from_real(case.real, data, arrays, found[0]) == 0
    assert distance_from_real(case.real, data, arrays, tflite_micro(data, arrays)) > 1


def test_sums_of_bytes_have_other_references(tmp_path: Path) -> None:
    """A package that is right is not refused because TensorFlow Lite Micro is not."""
    data, _ = CASES["ADD_N"].file("int8", 1)
    module = load(saved_tflite(data, tmp_path))
    verified = build(module, "host", tmp_path / "package", BuildOptions()).report["verify"]["host"]
    assert verified["passed"] and verified["reference"] == "TVM"
    assert "ADD_N of 8-bit integers differs from ADD_N of real numbers" in verified["own_reading"]


@pytest.mark.parametrize("name", ["ADD_N", "CUMSUM exclusive=False reverse=False"])
def test_sums_beyond_their_scale_are_refused(name: str, tmp_path: Path) -> None:
    net = Network(int8=True)
    outputs = list(CASES[name].make(net))
    for index in net.writer.inputs:
        net.writer.tensors[index].quantized = Quantized(scale=1e9)
    with pytest.raises(UnsupportedModel, match=r"steps of its result for one of its inputs; the limit is 2\^20"):
        load(saved_tflite(net.writer.finish(outputs), tmp_path))


def test_padded_blocks(tmp_path: Path) -> None:
    """SPACE_TO_BATCH_ND pads with the zero point; TensorFlow Lite Micro with what its memory happens to hold."""
    writer, scales = TfliteWriter(), Quantized(scale=0.1, zero_point=7)
    x = writer.input("x", (1, 3, 2, 1), "int8", scales)
    blocks = writer.constant("blocks", np.array([2, 2], np.int32))
    widths = writer.constant("widths", np.array([[1, 0], [0, 2]], np.int32))
    y = writer.operator("SPACE_TO_BATCH_ND", [x, blocks, widths], writer.tensor("y", (4, 2, 2, 1), "int8", scales))
    array = np.arange(1, 7, dtype=np.int8).reshape(1, 3, 2, 1)
    path = saved_tflite(writer.finish([y]), tmp_path)
    (found,), _ = referenced(path, [array])
    padded = np.pad(array, ((0, 0), (1, 0), (0, 2), (0, 0)), constant_values=7)
    parts = [padded[:, row::2, column::2] for row in range(2) for column in range(2)]
    np.testing.assert_array_equal(found, np.concatenate(parts))
    host = build(load(path), "host", tmp_path / "out").report["verify"]["host"]
    assert host["passed"] and host["reference"] != "TensorFlow Lite Micro"
    assert "pads with what its memory happens to hold" in str(host["refused_by"])


def chain(*steps: tuple[str, float | None]) -> ScalarProgram:
    """Functions one after the other, each of the last value and a number, or of it alone."""
    made = []
    for index, (function, number) in enumerate(steps):
        last = Operand(kind="value", index=index)
        more = () if number is None else (Operand(kind="number", number=number),)
        made.append(Instruction(function=function, operands=(last, *more)))
    return ScalarProgram(instructions=tuple(made))


def hard_swish() -> ScalarProgram:
    found = chain(("add", 3.0), ("maximum", 0.0), ("minimum", 6.0))
    product = Instruction(function="multiply", operands=(Operand(kind="value"), Operand(kind="value", index=3)))
    last = Operand(kind="value", index=4)
    divided = Instruction(function="divide", operands=(last, Operand(kind="number", number=6.0)))
    return ScalarProgram(instructions=(*found.instructions, product, divided))


FUNCTIONS = {
    "LOGISTIC": chain(("sigmoid", None)),
    "TANH": chain(("tanh", None)),
    "ABS": chain(("abs", None)),
    "RSQRT": chain(("rsqrt", None)),
    "HARD_SWISH": hard_swish(),
}
FIXED = {"LOGISTIC": (1 / 256, -128), "TANH": (1 / 128, 0)}


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_tables_are_exact(kind: str) -> None:
    """All 256 elements, for scales and zero points of three magnitudes."""
    random, elements = np.random.default_rng(3), np.arange(256, dtype=np.uint8).view(np.int8)
    for _ in range(30):
        source = float(np.float32(10 ** random.uniform(-3, 0.3))), int(random.integers(-128, 128))
        output = float(np.float32(source[0] * 10 ** random.uniform(-1.5, 1))), int(random.integers(-128, 128))
        if kind == "RSQRT":  # elements below the zero point are refused
            source, output = (source[0], -128), (float(np.float32(10 ** random.uniform(-3, 0.3))), output[1])
        output = FIXED.get(kind, output)
        writer = TfliteWriter()
        x = writer.input("x", (256,), "int8", Quantized(scale=source[0], zero_point=source[1]))
        y = writer.tensor("y", (256,), "int8", Quantized(scale=output[0], zero_point=output[1]))
        writer.operator(kind, [x], y, "AbsOptions" if kind == "ABS" else "")
        operator = QUnary(
            inputs=(typed(*source),), outputs=(typed(*output),), finish=FUNCTIONS[kind], rounding="tflite"
        )
        expected = tflite_micro(writer.finish([y]), [elements])
        np.testing.assert_array_equal(tflite_table(operator), expected, err_msg=f"{source} to {output}")


def typed(scale: float, zero_point: int) -> TensorType:
    return TensorType(shape=(256,), dtype="int8", quantization=Quantization(scale=scale, zero_point=zero_point))


@pytest.mark.parametrize("label", ["same shape", "constant", "one number"])
def test_quotients_of_bytes_that_litert_defines_are_the_real_ones(label: str, tmp_path: Path) -> None:
    """What its C code leaves undefined is told from the inputs: the other bytes are real quotients, rounded once."""
    litert, num_undefined = peer("ai_edge_litert.interpreter"), 0
    for seed in range(1, 12):
        data, arrays = CASES[f"DIV {label}"].file("int8", seed)
        file = read_tflite(saved_tflite(data, tmp_path), Limits())
        given = dict(zip(file.inputs, arrays, strict=True))
        first, second = (given.get(index, file.tensors[index].data) for index in file.nodes[0].inputs)
        assert first is not None and second is not None
        undefined = is_undefined(file, file.nodes[0], first, second)
        num_undefined += int(undefined.sum())
        reference = litert.OpResolverType.BUILTIN_REF
        interpreter = litert.Interpreter(model_content=data, experimental_op_resolver_type=reference)
        interpreter.allocate_tensors()
        for detail, array in zip(interpreter.get_input_details(), arrays, strict=True):
            interpreter.set_tensor(detail["index"], array)
        try:
            interpreter.invoke()
        except RuntimeError:  # a divisor of 0
            assert undefined.any()
            continue
        found = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
        assert distance_from_real(np.divide, data, arrays, found, among=~undefined) == 0
    assert num_undefined > 0


@pytest.mark.parametrize(("name", "seed", "runtime"), [("DIV constant", 1, "TVM"), ("DIV one number", 2, "LiteRT")])
def test_quotients_that_no_runtime_defines_are_no_failure(name: str, seed: int, runtime: str, tmp_path: Path) -> None:
    """LiteRT was up to 201 steps off the real quotients of the first file, which failed the build."""
    data, _ = CASES[name].file("int8", seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelNotice)
        package = build(saved_tflite(data, tmp_path), "host", tmp_path / "package", BuildOptions(verify=("host",)))
    judged = package.report["verify"]["host"]
    assert judged["passed"] and judged["reference"] == runtime
    if runtime == "TVM":
        assert "DIV of 8-bit integers shifts some of these quotients" in judged["own_reading"]
