"""Float outputs and the tensors inside are judged by rounding errors, channel by channel (`judge_floats`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm_ext
import tvm_ext.building.subject
import tvm_ext.verification.judgement
from codegen_c.backend.build import Compiled
from codegen_c.kernels.measurements import KernelMeasurements
from tests.support.packages import HOST_ONLY
from tests.support.sweeps import some_of
from tvm_ext.compilation.pipeline import compiler_of
from tvm_ext.core.errors import VerificationFailed
from tvm_ext.frontends.shapes import ModelNotice
from tvm_ext.verification.judge_floats import KnownTensor, judged, judged_unevaluated, tolerances, weak_outputs
from tvm_ext.verification.judgement import float_limit
from tvm_ext.verification.reference_runtimes import float64_runtime
from tvm_ext.verification.reference_runtimes.ask import OtherMode, ask_modes
from tvm_ext.verification.reference_runtimes.float64_runtime import shared_noise

RANDOM = np.random.default_rng(5)


def _saved(path: Path, nodes: list[onnx.NodeProto], shape: list[int], **weights: np.ndarray) -> Path:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    tensors = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, path.stem, [x], [y], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return path


def boxes_and_scores(path: Path) -> Path:
    """[1, 20, 5]: four numbers up to hundreds, and a score below one."""
    nodes = [
        helper.make_node("MatMul", ["x", "boxes"], ["b"]),
        helper.make_node("MatMul", ["x", "scores"], ["s"]),
        helper.make_node("Sigmoid", ["s"], ["p"]),
        helper.make_node("Concat", ["b", "p"], ["y"], axis=2),
    ]
    boxes, scores = RANDOM.standard_normal((16, 4)) * 100, RANDOM.standard_normal((16, 1)) * 0.1
    return _saved(path, nodes, [1, 20, 16], boxes=boxes, scores=scores)


def hidden_behind_saturation(path: Path) -> Path:
    """A layer whose results are far beyond where tanh still changes."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "scores"], ["s"]),
        helper.make_node("Tanh", ["s"], ["y"]),
    ]
    w, scores = RANDOM.standard_normal((16, 8)), np.full((8, 2), 1000.0)
    return _saved(path, nodes, [1, 16], w=w, scores=scores)


def small_sigmoid(path: Path) -> Path:
    """A sigmoid of about 1e-6, which onnxruntime computes to 4e-8."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Add", ["h", "b"], ["z"]),
        helper.make_node("Sigmoid", ["z"], ["y"]),
    ]
    return _saved(path, nodes, [1, 16], w=RANDOM.standard_normal((16, 8)) * 0.05, b=np.full(8, -13.8))


def masked_attention(path: Path) -> Path:
    """Attention to the last three of six positions: -inf is added to the other scores, in each row."""
    random = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["x", "queries"], ["q"]),
        helper.make_node("Transpose", ["x"], ["k"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "k"], ["s"]),
        helper.make_node("Add", ["s", "mask"], ["m"]),
        helper.make_node("Softmax", ["m"], ["p"]),
        helper.make_node("MatMul", ["p", "x"], ["a"]),
        helper.make_node("MatMul", ["a", "values"], ["y"]),
    ]
    mask = np.where(np.tri(6) - np.tri(6, k=-3) > 0, 0.0, -np.inf)
    queries, values = random.standard_normal((8, 8)) * 0.2, random.standard_normal((8, 16))
    return _saved(path, nodes, [1, 6, 8], queries=queries, mask=mask, values=values)


def _scaled(size: int, factor: float) -> Callable[[Compiled], Compiled]:
    """The C gets a constant of that size scaled; the references keep theirs."""

    def changed(compiled: Compiled) -> Compiled:
        constants = dict(compiled.program.constants)
        name = next(key for key, value in constants.items() if value.data.size == size)
        constants[name] = replace(constants[name], data=(constants[name].data * factor).astype(np.float32))
        return replace(compiled, program=replace(compiled.program, constants=constants))

    return changed


def _compile_wrongly(monkeypatch: pytest.MonkeyPatch, change: Callable[[Compiled], Compiled]) -> None:
    def changed(*values: object) -> object:
        compiler = compiler_of(*values)  # pyright: ignore[reportArgumentType]

        def wrong(figures: KernelMeasurements) -> tuple[object, Compiled]:
            module, compiled = compiler(figures)
            return module, change(compiled)

        return wrong

    monkeypatch.setattr(tvm_ext.building.subject, "compiler_of", changed)


@pytest.mark.parametrize(
    ("make", "size", "message"),
    [
        (boxes_and_scores, 16, r"output y, sample \d, at \[0, \d+, 4\]: differs from onnxruntime by"),
        (hidden_behind_saturation, 128, r"inner tensor r, sample \d, at \[0, \d\]: differs from onnx"),
        (small_sigmoid, 128, "differs from onnxruntime by"),
    ],
)
def test_weights_of_a_layer_that_are_wrong_by_a_fifth_are_found(
    make: Callable[[Path], Path], size: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path / "model.onnx")
    _compile_wrongly(monkeypatch, _scaled(size, 1.2))
    with pytest.raises(VerificationFailed, match=message):
        tvm_ext.build(path, "host", tmp_path / "package", HOST_ONLY)
    assert not (tmp_path / "package").exists()


def test_a_weight_behind_a_mask_of_minus_infinity_that_is_wrong_by_a_hundredth_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = masked_attention(tmp_path / "model.onnx")
    _compile_wrongly(monkeypatch, _scaled(128, 1.01))
    with pytest.raises(VerificationFailed, match="differs from onnxruntime by"):
        tvm_ext.build(path, "host", tmp_path / "package", HOST_ONLY)


@pytest.mark.parametrize("make", [boxes_and_scores, hidden_behind_saturation, masked_attention])
def test_right_packages_pass_and_say_how_near_they_are(make: Callable[[Path], Path], tmp_path: Path) -> None:
    package = tvm_ext.build(make(tmp_path / "model.onnx"), "host", tmp_path / "package", HOST_ONLY)
    found = package.report["verify"]["host"]
    assert found["passed"] and found["tensors_compared"] >= 1
    assert 0 <= found["float64"]["of_tolerance"] <= 0.5 and not found["float64"]["weak"]


def test_a_probability_of_a_millionth_passes(tmp_path: Path) -> None:
    """onnxruntime is 4e-8 off the real sigmoid, the C 1e-12: both are right."""
    package = tvm_ext.build(small_sigmoid(tmp_path / "model.onnx"), "host", tmp_path / "package", HOST_ONLY)
    found = package.report["verify"]["host"]
    assert found["passed"] and not found["warnings"] and found["float64"]["of_tolerance"] < 0.5


def test_an_output_that_is_rounding_alone_gets_a_warning(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Add", ["x", "large"], ["a"]),
        helper.make_node("Sub", ["a", "large"], ["b"]),
        helper.make_node("Sub", ["b", "x"], ["y"]),
    ]
    path = _saved(tmp_path / "model.onnx", nodes, [1, 16], large=np.full(16, 1e6))
    with pytest.warns(ModelNotice, match="output y is hardly verified"):
        package = tvm_ext.build(path, "host", tmp_path / "package", HOST_ONLY)
    (doubt,) = package.report["verify"]["host"]["warnings"]
    assert "--verify-inputs" in doubt


@pytest.mark.parametrize("name", some_of(["hey_lara"], sweep=["kws_fp32", "resnet_fp32"]))
def test_real_files_are_far_within_their_tolerance(name: str, shared_models: Path, tmp_path: Path) -> None:
    folder = shared_models if name.endswith("fp32") else shared_models.parent / "real"
    path = folder / f"{name}.onnx"
    if not path.is_file():
        pytest.skip(f"{path.name} is not there")
    package = tvm_ext.build(path, "host", tmp_path / "package", HOST_ONLY)
    assert package.report["verify"]["host"]["float64"]["of_tolerance"] <= 0.5


def test_a_model_that_has_no_float64_evaluation_gets_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its verification is weaker, which the report does not hide."""

    def fails(*_: object) -> object:
        raise ValueError("planted")

    monkeypatch.setattr(float64_runtime, "in_float64", fails)
    package = tvm_ext.build(small_sigmoid(tmp_path / "model.onnx"), "host", tmp_path / "out", HOST_ONLY)
    found = package.report["verify"]["host"]
    (warning,) = found["warnings"]
    assert "fixed tolerance" in warning and "raised ValueError: planted" in warning and "float64" not in found


def test_the_noise_of_a_channel_is_its_own_on_any_axis() -> None:
    noise = np.array([[1.0, 1e-6], [2.0, 3e-6]])
    np.testing.assert_array_equal(shared_noise(noise), [[1.0, 3e-6], [2.0, 3e-6]])
    np.testing.assert_array_equal(shared_noise(noise.T), [[1.0, 2.0], [3e-6, 3e-6]])
    np.testing.assert_array_equal(shared_noise(np.array([[1.0, np.inf], [2.0, 3.0]])), [[1.0, np.inf], [2.0, 3.0]])


def test_channels_that_were_moved_too_seldom_share_their_noise() -> None:
    noise = np.array([[1.0, 1e-6, 2.0]])
    np.testing.assert_array_equal(shared_noise(noise, 7), [[2.0, 2.0, 2.0]])
    np.testing.assert_array_equal(shared_noise(np.repeat(noise, 4, 0), 2), np.repeat(noise, 4, 0))


def _known(reported: list[float], exact: list[float], limit: float, *, stressed: bool = False) -> KnownTensor:
    limits, scale = np.full(len(exact), limit), max(map(abs, reported))
    return KnownTensor(
        reported=np.float32(reported),
        exact=np.float64(exact),
        limits=limits,
        reported_limits=limits,
        scale=scale,
        is_stressed=stressed,
    )


@pytest.mark.parametrize(
    ("got", "reported", "exact", "stressed", "passes", "cause"),
    [
        ([1.0, 2.0], [1.0, 2.0], [1.0, 2.0], False, True, ""),
        ([1.0, 2.02], [1.0, 2.0], [1.0, 2.0], False, False, "c"),
        ([1.0, 2.02], [1.0, 2.0], [1.0, 2.02], False, False, "reading"),
        ([1.0, 2.02], [1.0, 2.0], [1.0, 2.02], True, True, ""),
        ([1.0, 2.0], [1.0, 2.0], [1.0, 2.5], False, True, ""),
        ([1.0, np.nan], [1.0, 2.0], [1.0, 2.0], False, False, "c"),
        ([1.0, np.nan], [1.0, np.nan], [1.0, np.nan], False, True, ""),
    ],
)
def test_who_is_off_is_said(
    got: list[float], reported: list[float], exact: list[float], stressed: bool, passes: bool, cause: str
) -> None:
    verdict = judged(np.float32(got), _known(reported, exact, 0.01, stressed=stressed))
    assert (verdict.passed, verdict.cause) == (passes, cause)


def test_no_float64_value_is_claimed_for_a_sample_without_one() -> None:
    known = _known([1.0] * 4, [1.0] * 4, 0.01)
    verdict = judged_unevaluated(np.full(4, 3, np.float32), np.ones(4, np.float32), [known], 1e-4)
    assert not verdict.passed and verdict.error == 2
    assert verdict.sentence("output y", "onnxruntime").endswith("because this one was not evaluated in float64")


def test_an_output_whose_tolerance_is_infinite_is_weak() -> None:
    finite, infinite = (_known([1.0, 2.0], [1.0, 2.0], limit) for limit in (1e-3, np.inf))
    assert weak_outputs([{"y": infinite}, {"y": infinite}]) == {"y": 1.0}
    assert not weak_outputs([{"y": infinite}, {"y": finite}])
    certain = replace(finite, exact=np.array([1.0, np.inf]), limits=np.array([1e-3, np.inf]))
    assert not weak_outputs([{"y": certain}]), "a result that is infinite is known"


def test_a_step_that_rounding_decides_is_no_failure(shared: Path, tmp_path: Path) -> None:
    """Its weights have a scale per input channel, so sums are in float, and some lie between two steps of the output.

    Of samples behind the first ones, those out of tolerance are evaluated in float64.
    """
    package = tvm_ext.build(shared / "cases" / "qdq_convt_ax0.onnx", "host", tmp_path / "package", HOST_ONLY)
    assert 0.09 < package.report["verify"]["host"]["max_abs_error"] < 0.11


def test_tolerances_grow_with_noise_and_with_the_channel() -> None:
    exact, noise = np.array([[100.0, 0.5]]), np.array([[1e-4, 0.0]])
    found = tolerances(exact, noise, "float32")
    np.testing.assert_allclose(found, [[8e-4 + 100 * 2.0**-22, 0.5 * 2.0**-22]])
    assert tolerances(exact, noise, "float16")[0, 1] == pytest.approx(0.5 * 2.0**-9)


EMPTY = {
    "is NaN": (["Sub", "Log"], 50.0),  # the sample with a mean of 1,000 gives numbers
    "is 0": (["Sub", "Relu"], 50.0),
    "is saturated, 0 or 1,": (["Sub", "HardSigmoid"], 0.0),
}


@pytest.mark.parametrize("what", EMPTY)
def test_outputs_that_say_nothing_get_a_warning(what: str, tmp_path: Path) -> None:
    (first, second), subtrahend = EMPTY[what]
    scale = 1e9 if second == "HardSigmoid" else 1.0
    nodes = [
        helper.make_node(first, ["x", "c"], ["d"]),
        helper.make_node("Mul", ["d", "s"], ["m"]),
        helper.make_node(second, ["m"], ["y"]),
    ]
    path = _saved(tmp_path / "model.onnx", nodes, [1, 16], c=np.full(16, subtrahend), s=np.full(16, scale))
    with pytest.warns(ModelNotice, match=rf"output y {what} in all \d+ samples"):
        package = tvm_ext.build(path, "host", tmp_path / "package", HOST_ONLY)
    assert any(what in doubt for doubt in package.report["verify"]["host"]["warnings"])


def test_a_runtime_that_gives_no_numbers_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logarithms of numbers of which half are negative: no package could be told right from wrong by them."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Log", ["h"], ["y"])]
    path = _saved(tmp_path / "model.onnx", nodes, [1, 16], w=RANDOM.standard_normal((16, 8)))
    _compile_wrongly(monkeypatch, _scaled(128, 1.2))
    with pytest.raises(
        VerificationFailed, match=r"cannot tell.*onnxruntime itself gives NaN.*--verify-inputs"
    ) as error:
        tvm_ext.build(path, "host", tmp_path / "package", HOST_ONLY)
    assert "the C code does not compute the model" not in str(error.value)


def test_modes_of_a_runtime_that_differ_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = hidden_behind_saturation(tmp_path / "model.onnx")
    _compile_wrongly(monkeypatch, _scaled(128, 1.2))
    one, other = {"y": np.zeros((1, 2), np.float32)}, {"y": np.full((1, 2), 0.5, np.float32)}
    modes = OtherMode(modes=("the runtime", "the runtime in haste"), outputs=[(one, other)] * 4)
    monkeypatch.setattr(tvm_ext.verification.judgement, "ask_modes", lambda *_: modes)
    message = "cannot tell.*the runtime in haste differs from the runtime by 0.5 in output y.*--verify-inputs"
    with pytest.raises(VerificationFailed, match=message):
        tvm_ext.build(path, "host", tmp_path / "package", HOST_ONLY)


def test_onnxruntime_has_two_modes_that_agree_here(tmp_path: Path) -> None:
    mod = tvm_ext.load(boxes_and_scores(tmp_path / "model.onnx"))
    found = ask_modes(mod, [{"x": RANDOM.standard_normal((1, 20, 16)).astype(np.float32)}])
    assert found is not None and "with its optimizer" in found.modes[1]
    ((one, other),) = found.outputs
    np.testing.assert_allclose(one["y"], other["y"], rtol=1e-4, atol=1e-4)


def test_long_sums_of_a_quantized_model_may_differ_by_their_rounding() -> None:
    """C adds 147,456 squares one after the other, as `cumsum` does, and numpy in pairs."""
    squares = np.random.default_rng(0).normal(size=384 * 384).astype(np.float32) ** 2
    gap = abs(np.cumsum(squares, dtype=np.float32)[-1] / squares.sum(dtype=np.float64) - 1)
    assert float_limit(1) == float_limit(100) == 1e-5
    assert 1e-7 < gap < float_limit(squares.size) < 2e-4
