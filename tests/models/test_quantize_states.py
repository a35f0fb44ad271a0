"""Models with states, quantized here: a state has one scale, is carried over samples, and its error is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from tvm import relax

import tvm_ext
from relay_passes.analysis.choose_precision import Ratio
from relay_passes.dataflow import array_of, bindings, op_name, outputs
from tests.support import state_models as models
from tests.support.onnx_models import saved
from tests.support.sweeps import some_rows
from tvm_ext import BuildOptions, Package, Platform
from tvm_ext.compilation.pipeline import compile_model
from tvm_ext.core.decisions.models import KeptStates
from tvm_ext.core.errors import BadInput
from tvm_ext.verification.reference_runtimes.onnxruntime_runtime import onnx_outputs

Sample = dict[str, np.ndarray]


def steps(count: int, seed: int = 0, *, mean: float = 0.0, **shapes: tuple[int, ...]) -> list[Sample]:
    random = np.random.default_rng(seed)
    return [
        {name: (mean + random.standard_normal(shape)).astype(np.float32) for name, shape in shapes.items()}
        for _ in range(count)
    ]


def quantized(
    model: onnx.ModelProto, pairs: Mapping[str, str], samples: Sequence[Sample], folder: Path, **options: object
) -> Package:
    module = tvm_ext.load(saved(model, folder), states=pairs)
    chosen = BuildOptions(quantize="int8", **options)  # type: ignore[arg-type]
    return tvm_ext.build(module, "host", folder / "package", chosen, calibration=samples)


def dtypes(package: Package) -> dict[str, str]:
    return {state["name"]: state["dtype"] for state in package.report["states"]}


CASES = {
    "ring": (models.frames(), {"before": "before.next"}, {"x": (1, 8, 1, 1)}, 8),
    "delays": (models.delays(), {"z1": "z1.next", "z2": "z2.next"}, {"x": (1, 8)}, 8),
    "gru": (models.gate(), {"h": "hn"}, {"x": (1, 1, 6)}, 5),
}


@pytest.mark.parametrize(
    ("name", "io_type"), some_rows([("ring", "int8"), ("gru", "int8")], sweep=[("delays", "float32")])
)
def test_int8_states_follow_the_float_model(name: str, io_type: str, tmp_path: Path) -> None:
    """Over 100 steps of other samples, beside onnxruntime on the float model with its own states."""
    model, pairs, shapes, width = CASES[name]
    verify = () if name == "gru" else ("host",)  # a minute of its own
    package = quantized(model, pairs, steps(100, **shapes), tmp_path, io_type=io_type, verify=verify)
    kept = "int16" if name == "gru" else "int8"  # its changes are too small for 8 bits
    assert set(dtypes(package).values()) == {kept} and list(package.inputs) == ["x"]
    host, report = package.report["verify"]["host"], package.report["quantization"]
    if verify:
        assert host["passed"] and host["elements"] >= 300 and host["own_reading"] is None
        assert package.report["comparisons"][0]["against"] == "onnxruntime"
    assert report["carried_snr_db"] > 30
    assert {state["name"]: state["dtype"] for state in report["states"]} == dtypes(package)
    samples = steps(100, 1, **shapes)
    rank = {"ring": (1, width, 4, 1), "delays": (1, width), "gru": (1, 1, width)}[name]
    carried = [{"name": one, "output": other, "initial": np.zeros(rank, np.float32)} for one, other in pairs.items()]
    wanted, ratio = onnx_outputs(model, samples, (), carried), Ratio()
    x, y = package.inputs["x"], package.outputs["y"]
    with package.session() as session:
        for sample, expected in zip(samples, wanted, strict=True):
            given, found = sample["x"], None
            if x.scale is not None:
                given = np.clip(np.rint(given / x.scale) + x.zero_point, -128, 127).astype(np.int8)
            found = session.run({"x": given})["y"]
            real = (found.astype(np.float32) - y.zero_point) * y.scale if y.scale is not None else found
            ratio.add(expected["y"], real)
    assert ratio.db > 25


@pytest.mark.sweep
@pytest.mark.board
def test_a_voice_detector_in_int8(tmp_path: Path) -> None:
    """An LSTM between convolutions: 100 steps on the host and on the board, as TVM runs the QDQ form."""
    module = tvm_ext.load(saved(models.voice_detector(), tmp_path))
    options, samples = BuildOptions(quantize="int8"), steps(100, x=(1, 1, 64))
    package = tvm_ext.build(module, "cortex_m4", tmp_path / "package", options, calibration=samples)
    for target in ("host", "qemu"):
        assert package.report["verify"][target]["passed"] and package.report["verify"][target]["elements"] == 100
    assert set(dtypes(package)) == {"h", "c"} and package.report["quantization"]["carried_snr_db"] > 30


def test_a_state_has_one_scale(tmp_path: Path) -> None:
    """Where a run finds it and where it leaves it, and begins where the float one does."""
    begins = np.linspace(-0.5, 0.5, 8, dtype=np.float32).reshape(1, 8)
    pairs = {"z1": "z1.next", "z2": "z2.next"}
    module = tvm_ext.load(saved(models.delays(), tmp_path), states=pairs, initial={"z1": begins})
    options = BuildOptions(quantize="int8")
    mod, _ = compile_model(module, Platform.load("host"), options, steps(40, x=(1, 8)))
    main, states = mod["main"], {state.name: state.initial for state in KeptStates.read(mod).states}
    scales = [scales_of(mod, var) for var in (*main.params[1:], *outputs(main)[1:])]
    assert len(scales) == 4 and len({found for found in scales if found}) == 1
    ((scale, zero_point),) = {found for found in scales if found}
    assert {str(array.dtype) for array in states.values()} == {"int8"} and (states["z2"] == zero_point).all()
    np.testing.assert_allclose((states["z1"].astype(np.float32) - zero_point) * scale, begins, atol=scale / 2 + 1e-6)


def scales_of(mod: tvm.IRModule, var: relax.Expr) -> tuple[float, int] | None:
    """Scale and zero point with which a value is made or read."""
    for binding in bindings(mod["main"]):
        call = binding.value
        read = op_name(call) == "relax.dequantize" and call.args[0].same_as(var)
        if read or (op_name(call) == "relax.quantize" and binding.var.same_as(var)):
            scale, zero_point = (array_of(arg) for arg in call.args[1:3])
            assert scale is not None and zero_point is not None
            return float(scale), int(zero_point)
    return None


def test_a_state_stays_float_where_int8_loses_too_much(tmp_path: Path) -> None:
    """A slow mean moves by less than a step of int8; where less is asked for it is int8 nevertheless."""
    samples = steps(200, mean=1.0, x=(1, 8))
    model, pairs = models.integrator(), {"h": "h.next"}
    fine = quantized(model, pairs, samples, tmp_path, min_snr_db=42.0, verify=())
    assert dtypes(fine) == {"h": "float32"}
    (reason,) = (left["reason"] for left in fine.report["quantization"]["left_float"] if left["name"] == "h")
    assert "a state, or changes one; in int8 outputs reach" in reason and "over 200 steps" in reason
    assert "42 dB are asked" in reason and fine.report["quantization"]["carried_snr_db"] >= 42
    coarse = quantized(model, pairs, samples, tmp_path, verify=())
    assert dtypes(coarse) == {"h": "int8"} and 10 < coarse.report["quantization"]["carried_snr_db"] < 42


def test_samples_may_be_several_sequences(tmp_path: Path) -> None:
    """A state that only grows: begun anew every 10 steps it stays small, and its scale is fine."""
    samples = [{"x": np.full((1, 8), 1, np.float32)}] * 100
    model, pairs = models.growing(), {"h": "h.next"}
    one = quantized(model, pairs, samples, tmp_path, verify=())
    resets = [{**sample, "resets": np.int64(index % 10 == 0)} for index, sample in enumerate(samples)]
    many = quantized(model, pairs, resets, tmp_path, verify=())
    assert one.outputs["y"].scale == pytest.approx(100 / 255, rel=0.02)
    assert many.outputs["y"].scale == pytest.approx(10 / 255, rel=0.02)


@pytest.mark.parametrize(
    ("resets", "message"),
    [
        (np.ones(9, np.int64), r"there are 9 resets for 10 samples\. Give one"),
        (np.ones(10, np.float32), r"resets are float32\[10\], but must be one integer for each sample"),
    ],
)
def test_resets_that_cannot_be(resets: np.ndarray, message: str, tmp_path: Path) -> None:
    module = tvm_ext.load(saved(models.delays(), tmp_path), states={"z1": "z1.next"})
    samples = {"x": np.zeros((10, 1, 8), np.float32), "z2": np.zeros((10, 1, 8), np.float32), "resets": resets}
    with pytest.raises(BadInput, match=message):
        compile_model(module, Platform.load("host"), BuildOptions(quantize="int8"), samples)
