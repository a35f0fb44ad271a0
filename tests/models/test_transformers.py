"""Transformers end to end: int8 encoder blocks on boards, attention by rows, a decoder with a cache, a small CCT."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tvm_ext
from tests.support import transformer_models as models
from tests.support.onnx_models import saved
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions, Package

KERNELS = {
    "cortex_m4": {"qmatmul_dsp", "qsoftmax_dsp", "qnormalize_i8", "qconv2d_dsp", "qbinary_dsp", "qunary_i8"},
    "cortex_m55": {
        "qmatmul_helium", "qsoftmax_helium", "qnormalize_helium", "qdense_helium", "qbinary_helium", "qunary_helium",
    },
}  # fmt: skip


def block(tmp_path: Path, platform: str, tokens: int = 24, **options: object) -> Package:
    """An encoder block of 24 tokens, 32 wide, 4 heads, int8."""
    x = np.random.default_rng(0).standard_normal((6, 1, tokens, 32)).astype(np.float32)
    model = saved(models.encoder_block(tokens, 32, 4), tmp_path, "block")
    chosen = BuildOptions(quantize="int8", **options)  # type: ignore[arg-type]
    return tvm_ext.build(tvm_ext.load(model), platform, tmp_path / "package", chosen, calibration={"x": x})


@pytest.mark.board
@pytest.mark.parametrize("platform", some_of(["cortex_m55"], sweep=["cortex_m4"]))
def test_an_encoder_block_is_integers_throughout(platform: str, tmp_path: Path) -> None:
    package = block(tmp_path, platform)
    report = package.report
    assert {step["kernel"] for step in report["steps"]} == KERNELS[platform]
    assert not any(step["kernel"] in ("permute", "generic") for step in report["steps"]), "heads are read as they lie"
    assert all(report["verify"][on]["passed"] for on in ("host", "qemu"))
    assert all(operator["snr_db"] > 15 for operator in report["quantization"]["operators"])


def test_attention_by_rows_gives_the_same_bytes(tmp_path: Path) -> None:
    """Queries, keys, values, scores and the input take 6,144 bytes whole; in rows a few tokens' scores are there."""
    package = block(tmp_path, "cortex_m4", verify=("host",), ram=4608)
    assert package.report["arena_bytes"] <= 4608
    kernels = " ".join(step["kernel"] for step in package.report["steps"])
    assert "qsoftmax_dsp_in_rows" in kernels
    host = package.report["verify"]["host"]
    assert host["passed"] and host["max_abs_error"] == 0, "the bytes of the single operators"


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
