"""Transformers end to end: int8 encoder blocks on boards, attention by rows, a decoder with a cache, a small CCT."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import tvm_ext
from tests.support import transformer_models as models
from tests.support.onnx_models import saved
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions, Package
from tvm_ext.core.options import Quantize

KERNELS = {
    "cortex_m4": {"qmatmul_dsp", "qsoftmax_dsp", "qnormalize_i8", "qconv2d_dsp", "qbinary_dsp", "qunary_i8"},
    "cortex_m55": {
        "qmatmul_helium", "qsoftmax_helium", "qnormalize_helium", "qdense_helium", "qbinary_helium", "qunary_helium",
    },
}  # fmt: skip


WAYS = some_of([("cortex_m4", 4608)], sweep=[("cortex_m4", None), ("cortex_m55", None)])


@pytest.mark.board
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_an_encoder_block_is_integers_throughout(way: tuple[str, int | None], tmp_path: Path) -> None:
    """24 tokens, 32 wide, 4 heads. Scores and what else lives beside them take 6,144 bytes whole, less by rows."""
    platform, ram = way
    x = np.random.default_rng(0).standard_normal((6, 1, 24, 32)).astype(np.float32)
    model = saved(models.encoder_block(24, 32, 4), tmp_path, "block")
    options = BuildOptions(quantize="int8", ram=ram)
    report = tvm_ext.build(tvm_ext.load(model), platform, tmp_path / "package", options, calibration={"x": x}).report
    kernels = {name for step in report["steps"] for name in step["kernel"].split(", ")}
    assert {name.removesuffix("_in_rows") for name in kernels} == KERNELS[platform], "heads are read as they lie"
    assert all(operator["snr_db"] > 15 for operator in report["quantization"]["operators"])
    for on in ("host", "qemu"):
        assert report["verify"][on]["passed"] and report["verify"][on]["max_abs_error"] == 0
    if ram:
        assert any(name.startswith("qsoftmax") and name.endswith("_in_rows") for name in kernels)
        assert report["arena_bytes"] <= ram


@pytest.mark.board
@pytest.mark.parametrize("platform", some_of([], sweep=["cortex_m4", "cortex_m55"]))
def test_a_float_block_by_rows(platform: str, tmp_path: Path) -> None:
    """Scores divided as rows of them come; the whole does not fit."""
    model = saved(models.encoder_block(16, 16, 2), tmp_path, "block")
    options = BuildOptions(ram=3800, memories="default")
    report = tvm_ext.build(tvm_ext.load(model), platform, tmp_path / "package", options).report
    assert any("matmul_f32" in step["kernel"] and "softmax_f32_in_rows" in step["kernel"] for step in report["steps"])
    assert all(report["verify"][on]["passed"] for on in ("host", "qemu")) and report["arena_bytes"] <= 3800


@pytest.mark.parametrize("quantized", some_of([True], sweep=[False]))
def test_a_decoder_by_tokens_gives_the_bits_of_the_whole(quantized: bool, tmp_path: Path) -> None:
    """Keys and values of the tokens before are kept from run to run; a reset begins another sequence."""
    packages: dict[bool, Package] = {}
    for by_tokens in (False, True):
        model = saved(models.decoder(by_tokens=by_tokens, quantized=quantized), tmp_path, f"decoder_{by_tokens}")
        states = {name: f"{name}.next" for name in ("keys", "values", "there")} if by_tokens else None
        module = tvm_ext.load(model, states=states)
        packages[by_tokens] = tvm_ext.build(module, "host", tmp_path / f"package_{by_tokens}", BuildOptions())
        assert packages[by_tokens].report["verify"]["host"]["reference"] == "onnxruntime"
    states = {state["name"]: state["update"] for state in packages[True].report["states"]}
    assert set(states) == {"keys", "values", "there"}
    random = np.random.default_rng(5)
    with packages[False].session() as whole, packages[True].session() as stepwise:
        for _ in range(2):
            x = random.standard_normal((1, models.SLOTS, models.WIDTH)).astype(np.float32)
            expected = whole.run({"x": x})["y"]
            found = [stepwise.run({"x": x[:, token : token + 1]})["y"] for token in range(models.SLOTS)]
            np.testing.assert_array_equal(np.concatenate(found, axis=1), expected)
            stepwise.reset()


@pytest.mark.board
@pytest.mark.parametrize("platform", some_of([], sweep=["cortex_m55"]))
def test_a_compact_transformer(platform: str, tmp_path: Path) -> None:
    """A convolution, a pool, a block, tokens weighed and summed, classes."""
    samples = np.random.default_rng(0).standard_normal((8, 1, 3, 8, 8)).astype(np.float32)
    model = saved(models.compact_transformer(), tmp_path, "cct")
    options = BuildOptions(quantize="int8")
    package = tvm_ext.build(
        tvm_ext.load(model), platform, tmp_path / "package", options, calibration={"image": samples}
    )
    assert all(package.report["verify"][on]["passed"] for on in ("host", "qemu"))
    assert {step["kernel"] for step in package.report["steps"]} >= KERNELS[platform] - {"qunary_helium"}
    generic = {step["name"] for step in package.report["steps"] if step["kernel"] == "generic"}
    assert {name.rstrip("_2") for name in generic} <= {"placed", "weights"}, "a constant added; a softmax of columns"


@pytest.mark.board
@pytest.mark.parametrize("platform", some_of(["host"], sweep=["cortex_m4", "cortex_m55"]))
def test_a_rotary_decoder_is_integers_throughout(platform: str, tmp_path: Path) -> None:
    """Embeddings, products with cosines, a causal mask, SiLU and positions, to within onnxruntime's steps."""
    model = saved(models.rotary_decoder(), tmp_path, "rotary")
    samples = {"ids": np.random.default_rng(0).integers(0, 20, (4, 1, models.SLOTS))}
    report = tvm_ext.build(
        tvm_ext.load(model), platform, tmp_path / "package", BuildOptions(), verify_inputs=samples
    ).report
    assert all(found["passed"] for found in report["verify"].values() if found)
    assert report["verify"]["host"]["reference"] == "onnxruntime"
    steps = [step for step in report["steps"] if not step["name"].startswith("embedded")]
    assert not {step["kernel"] for step in steps} & {"generic", "elementwise_f32", "softmax_f32"}


@pytest.mark.parametrize("quantized", some_of([True], sweep=[False]))
def test_written_out_activations_are_tables(quantized: bool, tmp_path: Path) -> None:
    """GELU by erf and by tanh, and SiLU: one table of 256 each, in QDQ form and quantized here."""
    model = saved(models.activations(quantized=quantized), tmp_path, "activations")
    x = np.random.default_rng(0).standard_normal((6, 1, 6, models.WIDTH)).astype(np.float32)
    options = BuildOptions(quantize="none" if quantized else "int8")
    calibration = None if quantized else {"x": x}
    report = tvm_ext.build(tvm_ext.load(model), "host", tmp_path / "package", options, calibration=calibration).report
    kernels = [step["kernel"] for step in report["steps"] if step["kernel"] != "convert_quantized"]
    assert set(kernels[::2]) <= {"qdense_host", "qconv2d_host"} and kernels[1::2] == ["qunary_i8"] * 3
    assert report["verify"]["host"]["passed"]


BOARDS = [(platform, quantize) for platform in ("cortex_m4", "cortex_m55") for quantize in ("none", "int8")]
EEG_WAYS = some_of([("host", "none")], sweep=BOARDS)


@pytest.mark.board
@pytest.mark.parametrize("way", EEG_WAYS, ids=str)
def test_an_eeg_transformer(way: tuple[str, Quantize], tmp_path: Path) -> None:
    """Convolutions over time, blocks over electrodes, features and times, classes; in float to onnxruntime's numbers.

    Quantized, it comes within 20 dB of that.
    """
    platform, quantize = way
    x = np.random.default_rng(0).standard_normal((6, 1, 22, 256)).astype(np.float32)
    model, is_int8 = saved(models.eeg_transformer(), tmp_path, "eeg"), quantize == "int8"
    options = BuildOptions(quantize=quantize, io_type="float32" if is_int8 else "int8")
    calibration = {"x": x} if is_int8 else None
    package = tvm_ext.build(tvm_ext.load(model), platform, tmp_path / "package", options, calibration=calibration)
    report = package.report
    assert all(found["passed"] for found in report["verify"].values() if found)
    assert report["verify"]["host"]["reference"] == ("TVM" if is_int8 else "onnxruntime")
    if is_int8:
        assert not [step["name"] for step in report["steps"] if step["kernel"] == "generic"]
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        expected = np.array([session.run(None, {"x": sample})[0] for sample in x])
        with package.session() as running:
            error = np.array([running.run({"x": sample})["classes"] for sample in x]) - expected
        assert 10 * np.log10((expected**2).sum() / (error**2).sum()) > 20


@pytest.mark.parametrize("far", some_of([], sweep=[-1e4, -np.inf]))
def test_masks_leave_scores_their_scale(far: float, tmp_path: Path) -> None:
    """Causal attention quantized here: what is left out does not count in any range."""
    model = models.decoder(by_tokens=False, quantized=False)
    for tensor in model.graph.initializer:
        if tensor.name == "mask":
            array = onnx.numpy_helper.to_array(tensor)
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.where(array < 0, np.float32(far), array), "mask"))
    x = np.random.default_rng(0).standard_normal((8, 1, models.SLOTS, models.WIDTH)).astype(np.float32)
    package = tvm_ext.build(
        tvm_ext.load(saved(model, tmp_path)), "host", tmp_path / "package", BuildOptions(quantize="int8"),
        calibration={"x": x},
    )  # fmt: skip
    assert all(operator["snr_db"] > 20 for operator in package.report["quantization"]["operators"])
    assert {operator["dtype"] for operator in package.report["quantization"]["operators"]} == {"int8"}
