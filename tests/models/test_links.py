"""Links of a bundle: an output of one model becomes, mapped, an input or a state of another."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto

import tvm_ext
from codegen_c.operators.kinds import Quantization
from codegen_c.program.mapping import Element, Mapping, mapping_of
from codegen_c.program.resample import Resample, Resizing, resample_of
from tests.support import state_models
from tests.support.bundles import written
from tests.support.onnx_models import NODE, model_of
from tvm_ext import BundlePackage
from tvm_ext.core.errors import BadBundle, VerificationFailed
from tvm_ext.execution.bundle_runner import HostBundle

PORT = (1, 8)
INT8, INT32 = TensorProto.INT8, TensorProto.INT32


def small() -> onnx.ModelProto:
    """x float32 and n int32 [1, 8] -> y float32, q int8 of scale 1/16 and zero point 3, m int32."""
    nodes = [
        NODE("Sigmoid", ["x"], ["y"]),
        NODE("QuantizeLinear", ["y", "step", "zero"], ["q"]),
        NODE("Add", ["n", "n"], ["m"]),
    ]
    constants = {"step": np.float32(1 / 16), "zero": np.int8(3)}
    ports = {"x": (PORT, TensorProto.FLOAT), "n": (PORT, INT32)}
    return model_of(nodes, ports, [("y", TensorProto.FLOAT), ("q", INT8), ("m", INT32)], constants)


def large() -> onnx.ModelProto:
    """x, gain, level float32, code, grade int8 of other scales, count int32 [1, 8] -> r float32, t int32."""
    nodes = [
        NODE("DequantizeLinear", ["code", "code step", "code zero"], ["c"]),
        NODE("DequantizeLinear", ["grade", "grade step", "grade zero"], ["g"]),
        NODE("Mul", ["x", "gain"], ["a"]),
        NODE("Add", ["a", "level"], ["b"]),
        NODE("Add", ["b", "c"], ["d"]),
        NODE("Add", ["d", "g"], ["r"]),
        NODE("Add", ["count", "count"], ["t"]),
    ]
    constants = {"code step": np.float32(0.05), "code zero": np.int8(-7), "grade step": np.float32(0.02),
                 "grade zero": np.int8(1)}  # fmt: skip
    floats = {name: (PORT, TensorProto.FLOAT) for name in ("x", "gain", "level")}
    ports = {**floats, "code": (PORT, INT8), "grade": (PORT, INT8), "count": (PORT, INT32)}
    return model_of(nodes, ports, [("r", TensorProto.FLOAT), ("t", INT32)], constants)


def echo() -> onnx.ModelProto:
    """x, before float32[1, 8] -> y = x + before / 2."""
    nodes = [NODE("Mul", ["before", "half"], ["h"]), NODE("Add", ["x", "h"], ["y"])]
    return model_of(nodes, {"x": PORT, "before": PORT}, ["y"], {"half": np.float32(0.5)})


MODELS = {"small": small(), "large": large(), "echo": echo(), "delays": state_models.delays()}
ENTRIES = {
    "sensor": {"file": "small.onnx"},
    "network": {"file": "large.onnx"},
    "echo": {"file": "echo.onnx"},
    "filter": {"file": "delays.onnx", "states": {"z1": "z1.next", "z2": "z2.next"}},
}
LINKS = [
    {"source": "sensor.y", "target": "network.gain", "scale": 2, "shift": 0.5},
    {"source": "sensor.q", "target": "network.level", "scale": 0.1},
    {"source": "sensor.q", "target": "network.code", "shift": -0.25},
    {"source": "sensor.y", "target": "network.grade", "scale": 3.0},
    {"source": "sensor.m", "target": "network.count"},
    {"source": "echo.y", "target": "echo.before"},
    {"source": "sensor.y", "target": "filter.z1", "scale": -1.0},
]
MAPPINGS = ["scale", "dequantize", "table", "quantize", "copy", "copy", "scale"]


def with_links(folder: Path, links: list[dict[str, object]], **keys: object) -> Path:
    return written(folder, MODELS, ENTRIES, links=links, **keys)


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> BundlePackage:
    folder = tmp_path_factory.mktemp("linked")
    return tvm_ext.bundle(with_links(folder, LINKS), "host", folder / "package")


def test_what_runs_hand_on_is_what_their_outputs_map_to(linked: BundlePackage) -> None:
    report = linked.report
    assert [link["mapping"] for link in report["links"]] == MAPPINGS
    assert [link["constant_bytes"] for link in report["links"]] == [0, 0, 256, 0, 0, 0, 0]
    assert [one["model"] for one in report["linked_inputs"]] == ["network", "echo"]
    assert report["linked_inputs"][0]["num_bytes"] == 3 * 32 + 2 * 16
    assert not report["selftest_coverage"]["missed"]
    random = np.random.default_rng(4)
    interfaces = [model.interface for model in linked.models.values()]
    runs = {name: f"door_run_{name}" for name in ("sensor", "echo")}
    with HostBundle(linked.folder, "door", interfaces, runs) as host:
        x, n = random.standard_normal(PORT).astype(np.float32), random.integers(-9, 9, PORT).astype(np.int32)
        given_out = host.models["sensor"].run({"x": x, "n": n})
        # Others run in between, over the same bytes of the arena.
        before = np.zeros(PORT, np.float32)
        for _ in range(3):
            before = host.models["echo"].run({"x": x, "before": before})["y"]
        assert np.frombuffer(host.bytes_at("echo_before", 32), np.float32).tolist() == before.reshape(-1).tolist()
        gain = np.frombuffer(host.bytes_at("network_gain", 32), np.float32)
        np.testing.assert_allclose(gain, 2 * given_out["y"].reshape(-1) + 0.5, rtol=1e-6)
        level = np.frombuffer(host.bytes_at("network_level", 32), np.float32)
        real = (given_out["q"].reshape(-1).astype(np.float64) - 3) / 16
        np.testing.assert_allclose(level, 0.1 * real, rtol=1e-6, atol=1e-7)
        code = np.frombuffer(host.bytes_at("network_code", 8), np.int8)
        np.testing.assert_array_equal(code, np.rint((real - 0.25) / 0.05) - 7)
        grade = np.frombuffer(host.bytes_at("network_grade", 8), np.int8)
        assert np.abs(grade - np.clip(3 * given_out["y"].reshape(-1) / 0.02 + 1, -128, 127)).max() <= 0.51
        assert np.frombuffer(host.bytes_at("network_count", 32), np.int32).tolist() == (2 * n).reshape(-1).tolist()


def test_the_linked_state_is_what_the_next_run_finds(linked: BundlePackage) -> None:
    interfaces = [model.interface for model in linked.models.values()]
    zero, n = np.zeros(PORT, np.float32), np.zeros(PORT, np.int32)
    with HostBundle(linked.folder, "door", interfaces, {"sensor": "door_run_sensor"}) as host:
        assert not host.models["filter"].run({"x": zero})["y"].any()
        y = host.models["sensor"].run({"x": zero, "n": n})["y"]
        np.testing.assert_allclose(host.models["filter"].run({"x": zero})["y"], -1.5 * y, rtol=1e-6)


@pytest.mark.board
def test_links_on_the_cortex_m4(tmp_path: Path) -> None:
    """Every kind of mapping, compared on the board by its self-test, which the build runs."""
    bundle = tvm_ext.bundle(with_links(tmp_path, LINKS), "cortex_m4", tmp_path / "package")
    for model in bundle.models.values():
        assert all(model.report["verify"][target]["passed"] for target in ("host", "qemu"))


def test_a_wrong_mapping_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The build refuses C that maps otherwise than numpy does."""
    right = Mapping.reference
    path = with_links(tmp_path, LINKS[:1])
    with monkeypatch.context() as patch:
        patch.setattr(Mapping, "reference", lambda self, elements: right(self, elements) + np.float32(0.25))
        with pytest.raises(VerificationFailed, match=r"link 1, sensor\.y -> network\.gain: .*differs from the mapped"):
            tvm_ext.bundle(path, "host", tmp_path / "package")


REFUSED = [
    ({"source": "sensor.z", "target": "network.gain"}, r"sensor has no such output; it has y, q, m"),
    ({"source": "sensor.y", "target": "network.z"}, r"network has no such input or state; it has x, gain"),
    ({"source": "radio.y", "target": "network.gain"}, r"links\[0\]\.source: 'radio' is no model of the bundle"),
    ({"source": "sensor.y", "target": "radio.gain"}, r"links\[0\]\.target: 'radio' is no model"),
    ({"source": "sensor", "target": "network.gain"}, r"links\[0\]\.source = 'sensor': string should match"),
    ({"source": "sensor.y", "target": "network.gain", "scale": 1e31}, r"links\[0\]\.scale"),
    (
        {"source": "sensor.y", "target": "network.gain", "times": 1},
        r"links\[0\]\.times: unknown key; allowed here: sou",
    ),
    ({"source": "sensor.m", "target": "network.gain"}, r"int32 has no real values to scale"),
    ({"source": "sensor.m", "target": "network.count", "scale": 2}, r"only equal types can be copied, with scale 1"),
    ({"source": "sensor.y", "target": "network.gain", "resize": "cubic"}, r"links\[0\]\.resize"),
    ({"source": "sensor.y", "target": "network.count"}, r"sensor\.y cannot become network\.count: int32 has no real"),
]


@pytest.mark.parametrize(("link", "said"), REFUSED, ids=range(len(REFUSED)))
def test_links_that_cannot_be(link: dict[str, object], said: str, tmp_path: Path) -> None:
    with pytest.raises(BadBundle, match=said):
        tvm_ext.bundle(with_links(tmp_path, [link]), "host", tmp_path / "package", verify=())
    assert not (tmp_path / "package").exists()


def test_pairs_of_models_that_cannot_be_linked(tmp_path: Path) -> None:
    gain = LINKS[0]
    ring = {"file": "frames.onnx", "states": {"before": "before.next"}}
    frames = state_models.frames(channels=2)
    both = [NODE("Relu", ["x"], ["y"]), NODE("Cast", ["x"], ["n"], to=INT32)]
    wide = model_of(both, {"x": (1, 2, 4, 1)}, [("y", TensorProto.FLOAT), ("n", INT32)])
    far = model_of(both[:1], {"x": (1, 3, 5, 2)}, ["y"])
    counts = model_of([NODE("Add", ["x", "x"], ["y"])], {"x": ((1, 2, 8, 1), INT32)}, [("y", INT32)])
    most = state_models.frames(channels=2, then="ReduceMax")
    models = {**MODELS, "frames": frames, "wide": wide, "far": far, "counts": counts, "most": most}
    cases = [
        ([gain, {**LINKS[1], "target": "network.gain"}], {}, {}, r"'network\.gain' is another link's"),
        ([gain], {}, {"at_once": [["sensor", "network"]]}, r"sensor and network may run at once"),
        ([gain], {"sensor": {"file": "small.onnx", "options": {"io": "caller"}}}, {}, r"sensor has io = 'caller'"),
        ([gain], {"network": {"file": "large.onnx", "options": {"context": "caller"}}}, {}, r"context = 'caller'"),
        ([{"source": "wide.y", "target": "echo.x"}], {"wide": {"file": "wide.onnx"}}, {},
         r"wide\.y has shape \[1, 2, 4, 1\] and echo\.x has shape \[1, 8\], but the link has no resize"),
        ([{"source": "wide.y", "target": "echo.x", "resize": "linear"}], {"wide": {"file": "wide.onnx"}}, {},
         r"only sizes of axes can be resampled, not 4 axes to 2"),
        ([{"source": "wide.y", "target": "far.x", "resize": "linear"}],
         {"wide": {"file": "wide.onnx"}, "far": {"file": "far.onnx"}}, {},
         r"3 axes differ, and at most 2 can be resampled"),
        ([{"source": "wide.n", "target": "counts.x", "resize": "linear"}],
         {"wide": {"file": "wide.onnx"}, "counts": {"file": "counts.onnx"}}, {},
         r"int32 has no real values to interpolate; resize = 'nearest'"),
        ([{"source": "wide.y", "target": "ring.before"}], {"wide": {"file": "wide.onnx"}, "ring": ring}, {},
         r"the state 'before' of ring is a ring of rows"),
        ([{"source": "wide.y", "target": "image.before"}],
         {"wide": {"file": "wide.onnx"}, "image": {**ring, "file": "most.onnx"}}, {},
         r"the state 'before' of image is an image, which may be stored with its channels last"),
    ]  # fmt: skip
    for links, entries, keys, said in cases:
        path = written(tmp_path, models, {**ENTRIES, **entries}, links=links, **keys)
        with pytest.raises(BadBundle, match=said):
            tvm_ext.bundle(path, "host", tmp_path / "package", verify=())


def images() -> onnx.ModelProto:
    """x float32[1, 2, 5, 3] -> y float32, q int8 of scale 1/16 and zero point 3, m int32."""
    nodes = [
        NODE("Sigmoid", ["x"], ["y"]),
        NODE("QuantizeLinear", ["y", "step", "zero"], ["q"]),
        NODE("Cast", ["x"], ["m"], to=INT32),
    ]
    constants = {"step": np.float32(1 / 16), "zero": np.int8(3)}
    ports = {"x": ((1, 2, 5, 3), TensorProto.FLOAT)}
    return model_of(nodes, ports, [("y", TensorProto.FLOAT), ("q", INT8), ("m", INT32)], constants)


RESIZED = [
    ("y", "float", (1, 2, 9, 7), "linear", "copy"),
    ("y", "float", (1, 2, 2, 3), "linear", "copy"),
    ("q", "float", (1, 3, 5, 8), "linear", "scale"),
    ("y", "codes", (1, 2, 5, 6), "linear", "quantize"),
    ("q", "codes", (1, 2, 3, 2), "linear", "quantize"),
    ("q", "codes", (1, 2, 10, 6), "nearest", "table"),
    ("m", "whole", (1, 1, 5, 9), "nearest", "copy"),
    ("y", "float", (1, 2, 1, 1), "linear", "copy"),
    ("y", "float", (1, 2, 1, 1), "nearest", "copy"),
]
"""Output of `images`, kind of the target's input and its shape, resize, and the mapping of elements."""


def shown() -> onnx.ModelProto:
    """An input for each of RESIZED, of which each becomes an output."""
    nodes, ports, outputs = [], {}, []
    for index, (_, kind, shape, _, _) in enumerate(RESIZED):
        x, y = f"x{index}", f"y{index}"
        ports[x] = (shape, {"float": TensorProto.FLOAT, "codes": INT8, "whole": INT32}[kind])
        outputs.append((y, INT32 if kind == "whole" else TensorProto.FLOAT))
        match kind:
            case "codes":
                nodes.append(NODE("DequantizeLinear", [x, "step", "zero"], [y]))
            case "whole":
                nodes.append(NODE("Add", [x, x], [y]))
            case _:
                nodes.append(NODE("Relu", [x], [y]))
    return model_of(nodes, ports, outputs, {"step": np.float32(0.02), "zero": np.int8(-9)})


@pytest.fixture(scope="module")
def resized(tmp_path_factory: pytest.TempPathFactory) -> BundlePackage:
    folder = tmp_path_factory.mktemp("resized")
    links = [
        {"source": f"camera.{output}", "target": f"display.x{index}", "resize": resize}
        for index, (output, _, _, resize, _) in enumerate(RESIZED)
    ]
    entries = {"camera": {"file": "images.onnx"}, "display": {"file": "shown.onnx"}}
    path = written(folder, {"images": images(), "shown": shown()}, entries, links=links)
    return tvm_ext.bundle(path, "cortex_m4", folder / "package")


def test_links_resample(resized: BundlePackage) -> None:
    """The build compares them with numpy, bit by bit, on the host and on the board."""
    found = [(link["resize"], link["mapping"]) for link in resized.report["links"]]
    assert found == [(resize, mapping) for *_, resize, mapping in RESIZED]
    assert [link["constant_bytes"] for link in resized.report["links"]][:2] == [6 * (9 + 7), 6 * 2]


@pytest.mark.parametrize("resize", ["nearest", "linear"])
@pytest.mark.parametrize(("source", "target"), [((1, 5, 4, 3), (1, 9, 2, 3)), ((6, 1), (4, 3)), ((2, 8), (2, 64))])
def test_resampling_is_onnx_resize(source: tuple[int, ...], target: tuple[int, ...], resize: Resizing) -> None:
    values = np.random.default_rng(0).normal(size=source).astype(np.float32)
    mode = {"mode": resize, "coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_floor"}
    node = NODE("Resize", ["x", "", "", "sizes"], ["y"], **mode)
    model = model_of([node], {"x": source}, ["y"], {"sizes": np.array(target, np.int64)})
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": values})[0]
    found = resample_of(source, target, resize)
    assert isinstance(found, Resample)
    np.testing.assert_allclose(found.reference(values).reshape(target), wanted, rtol=1e-5, atol=1e-6)


@given(
    st.sampled_from(["int8", "uint8"]), st.sampled_from(["int8", "uint8"]), st.floats(0.01, 1), st.floats(0.01, 1),
    st.integers(0, 100), st.integers(0, 100), st.floats(-4, 4), st.floats(-9, 9),
)  # fmt: skip
def test_mappings_are_nearest_and_saturate(
    one: str, other: str, step: float, other_step: float, zero: int, other_zero: int, scale: float, shift: float
) -> None:
    source = Element(dtype=one, quantization=Quantization(scale=step, zero_point=zero))
    target = Element(dtype=other, quantization=Quantization(scale=other_step, zero_point=other_zero))
    found = mapping_of(source, target, scale, shift)
    assert isinstance(found, Mapping)
    elements = np.arange(256, dtype=np.uint8).view(one)
    real = scale * step * (elements.astype(float) - zero) + shift
    limits = np.iinfo(other)
    wanted = np.clip(real / other_step + other_zero, limits.min, limits.max)
    assert np.abs(found.reference(elements).astype(float) - wanted).max() <= 0.5 + 1e-6


def test_mappings_at_the_edges() -> None:
    code = Element(dtype="int8", quantization=Quantization(scale=0.5, zero_point=0))
    found = mapping_of(Element(dtype="float32"), code, 1.0, 0.0)
    assert isinstance(found, Mapping) and found.kind == "quantize"
    values = np.array([np.nan, np.inf, -np.inf, 0.25, 0.75, -0.25, 1e30, -1e30, 63.4], np.float32)
    assert found.reference(values).tolist() == [-128, 127, -128, 0, 2, 0, 127, -128, 127]
