"""Models with state: what runs keep is what the model's own runtime keeps, over many steps, on the host and a board."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

import tvm_ext
from tests.support import state_models as models
from tests.support import tflite_state_models as tflite_models
from tests.support.onnx_models import NODE, model_of, saved
from tests.support.peers import peer
from tests.support.sweeps import some_of, some_rows
from tests.support.tflite_file import TfliteWriter
from tests.support.tflite_runners import saved_tflite
from tvm_ext import BuildOptions, Package
from tvm_ext.core.decisions.models import KeptStates
from tvm_ext.core.errors import BadInput, BadModel, BadOptions, RunFailed, UnsupportedModel
from tvm_ext.frontends.shapes import ModelNotice
from tvm_ext.verification.reference_runtimes.onnxruntime_runtime import onnx_outputs

Sample = dict[str, np.ndarray]
SHARED_STREAMS = {"okay_nabu_v2": (0xB6EE594A, 26_080), "vad_v2": (0x2D34039B, 16_772)}
"""FNV-1a of the outputs of TFLM's interpreter over 1,000 steps of given inputs, and the arena its makers publish."""


def built(model: onnx.ModelProto, folder: Path, pairs: Mapping[str, str] | None, **options: object) -> Package:
    module = tvm_ext.load(saved(model, folder), states=pairs)
    platform = options.pop("platform", "host")
    assert isinstance(platform, str)
    return tvm_ext.build(module, platform, folder / "package", BuildOptions(**options))  # type: ignore[arg-type]


def updates(package: Package) -> dict[str, str]:
    return {state["name"]: state["update"] for state in package.report["states"]}


CASES = {
    "delays": (models.delays(), {"z1": "z1.next", "z2": "z2.next"}, {"z1": "copy", "z2": "copy"}),
    "swapped": (models.swapped(), {"a": "a.next", "b": "b.next"}, {"a": "copy", "b": "copy"}),
    "counter": (models.counter(), {"count": "count.next"}, {"count": "copy"}),
    "one frame": (models.frames(), {"before": "before.next"}, {"before": "ring"}),
    "two of seven": (models.frames(pushed=2, rows=7), {"before": "before.next"}, {"before": "ring"}),
    "four of six": (models.frames(pushed=4, rows=6), {"before": "before.next"}, {"before": "shift"}),
    "set to a constant": (models.set_to_constant(), {"h": "h.next"}, {"h": "in place"}),
    "no kernel by rows": (models.frames(then="ReduceMax"), {"before": "before.next"}, {"before": "in place"}),
}


@pytest.mark.parametrize("name", CASES)
def test_states_are_those_of_onnxruntime(name: str, tmp_path: Path) -> None:
    model, pairs, wanted = CASES[name]
    package = built(model, tmp_path, pairs)
    assert updates(package) == wanted or name == "counter"
    host = package.report["verify"]["host"]
    assert host["passed"] and host["reference"] == "onnxruntime" and not set(pairs) & set(package.inputs)
    assert package.report["state_bytes"] >= sum(state["num_bytes"] for state in package.report["states"])


@pytest.mark.board
def test_a_voice_detector_runs_a_thousand_steps(tmp_path: Path) -> None:
    """An LSTM whose state goes in and comes out, found by its names; 100 steps on the board."""
    model = models.voice_detector()
    with pytest.warns(ModelNotice, match=r"h=hn, c=cn"):
        module = tvm_ext.load(saved(model, tmp_path))
    package = tvm_ext.build(module, "cortex_m4", tmp_path / "package", BuildOptions())
    assert updates(package) == {"h": "in place", "c": "in place"}
    assert all(package.report["verify"][target]["passed"] for target in ("host", "qemu"))
    random = np.random.default_rng(7)
    samples = [{"x": random.standard_normal((1, 1, 64)).astype(np.float32)} for _ in range(1000)]
    zeros = np.zeros((1, 1, models.HIDDEN), np.float32)
    states = [{"name": one, "output": other, "initial": zeros} for one, other in (("h", "hn"), ("c", "cn"))]
    wanted = onnx_outputs(model, samples, (), states)
    with package.session() as session:
        for sample, expected in zip(samples, wanted, strict=True):
            np.testing.assert_allclose(session.run(sample)["probability"], expected["probability"], atol=1e-5)


def test_names_that_say_nothing_are_left_alone(tmp_path: Path) -> None:
    model = models.delays()
    package = built(model, tmp_path, None, verify=())
    assert list(package.inputs) == ["x", "z1", "z2"] and not package.report["states"]
    module = tvm_ext.load(saved(models.voice_detector(), tmp_path), states={})
    assert not KeptStates.read(module).states


def test_a_session_resets_saves_and_restores(tmp_path: Path) -> None:
    package = built(models.counter(), tmp_path, {"count": "count.next"}, verify=())
    one = {"x": np.array([[1, 2, 3]], np.int32)}
    with package.session() as session:
        assert [session.run(one)["y"][0, 0] for _ in range(3)] == [2, 4, 6]
        kept = session.state()
        assert session.run(one)["y"].tolist() == [[8, 16, 24]]
        session.restore(kept)
        assert session.run(one)["y"].tolist() == [[8, 16, 24]]
        session.reset()
        assert session.run(one)["y"].tolist() == [[2, 4, 6]]
        with pytest.raises(BadInput, match=r"16 B, and 3 B are given"):
            session.restore(b"abc")
        session.restore(bytes(len(kept)))  # as memory is before the first reset
        with pytest.raises(RunFailed, match=r"returned -1"):
            session.run(one)
    assert package.run(one)["y"].tolist() == package.run(one)["y"].tolist() == [[2, 4, 6]]


def test_states_begin_as_they_are_told(tmp_path: Path) -> None:
    path = saved(models.counter(), tmp_path)
    begins = np.array([[10, 20, 30]], np.int32)
    module = tvm_ext.load(path, states={"count": "count.next"}, initial={"count": begins})
    package = tvm_ext.build(module, "host", tmp_path / "package", BuildOptions())
    with package.session() as session:
        assert session.run({"x": np.ones((1, 3), np.int32)})["y"].tolist() == [[22, 42, 62]]
    assert package.report["verify"]["host"]["passed"]


@pytest.mark.parametrize("io", ["caller", "stream"])
def test_states_go_with_every_interface(io: str, tmp_path: Path) -> None:
    package = built(models.frames(), tmp_path, {"before": "before.next"}, io=io)
    assert package.report["verify"]["host"]["passed"] and list(updates(package).values()) != []


def test_pairs_that_cannot_be_are_refused(tmp_path: Path) -> None:
    path = saved(models.delays(), tmp_path)
    cases: list[tuple[dict[str, str], str]] = [
        ({"z1": "nothing"}, r"'nothing' is no output; there are y, z1.next, z2.next"),
        ({"nothing": "z1.next"}, r"'nothing' is no input"),
        ({"z1": "z1.next", "z2": "z1.next"}, r"belongs to another state"),
        ({"x": "y", "z1": "z1.next", "z2": "z2.next"}, r"every output would be a state"),
    ]
    for pairs, text in cases:
        with pytest.raises(BadOptions, match=text):
            tvm_ext.load(path, states=pairs)
    with pytest.raises(BadOptions, match=r"input is float32\[1, 8, 2, 1\], the output float32\[1, 6, 1, 1\]"):
        tvm_ext.load(saved(models.frames(pushed=2), tmp_path, "frames"), states={"x": "y"})
    for initial, text in [
        ({"x": np.zeros((1, 8), np.float32)}, r"'x': it is no state; states are z1"),
        ({"z1": np.zeros((8,), np.float32)}, r"is float32\[8\]; the state is float32\[1, 8\]"),
    ]:
        with pytest.raises(BadInput, match=text):
            tvm_ext.load(path, states={"z1": "z1.next"}, initial=initial)


BEGINS = np.random.default_rng(1).integers(-100, 100, (1, 4, 1, 8)).astype(np.int8)


@pytest.mark.parametrize(
    ("options", "update"),
    some_rows(
        [
            ({}, "ring"),  # begins at its zero point
            ({"begins": BEGINS, "reads": 2}, "in place"),
            ({"begins": np.repeat(BEGINS[:, :1], 2, 1), "rows": 5, "pushed": 3}, "shift"),
        ],
        sweep=[({"begins": BEGINS}, "ring"), ({"begins": BEGINS.astype(np.float32), "int8": False}, "ring")],
    ),
)
def test_resource_variables_are_those_of_tflm(options: dict[str, object], update: str, tmp_path: Path) -> None:
    peer("tflite_micro")
    data = tflite_models.streaming_layer(**options)  # type: ignore[arg-type]
    module = tvm_ext.load(saved_tflite(data, tmp_path))
    package = tvm_ext.build(module, "host", tmp_path / "package", BuildOptions())
    host = package.report["verify"]["host"]
    assert host["passed"] and host["reference"] == "TensorFlow Lite Micro"
    assert updates(package) == {"stream/states": update}


@pytest.mark.board
@pytest.mark.parametrize("name", some_of(["vad_v2"], sweep=["okay_nabu_v2"]))
def test_micro_wake_words_give_tflms_bytes(name: str, shared_streaming: Path, tmp_path: Path) -> None:
    peer("tflite_micro")
    hash_of_outputs, published_bytes = SHARED_STREAMS[name]
    module = tvm_ext.load(shared_streaming / f"{name}.tflite")
    package = tvm_ext.build(module, "cortex_m4", tmp_path / "package", BuildOptions())
    assert all(package.report["verify"][target]["passed"] for target in ("host", "qemu"))
    assert package.report["arena_bytes"] <= published_bytes / 5
    found = 0x811C9DC5
    with package.session() as session:
        for seed in range(1, 1001):
            (output,) = session.run({next(iter(package.inputs)): frames_of(seed)}).values()
            for byte in output.tobytes():
                found = (found ^ byte) * 0x01000193 & 0xFFFFFFFF
    assert found == hash_of_outputs


def frames_of(seed: int) -> np.ndarray:
    """Inputs of a step as the published hashes have them."""
    numbers = []
    for _ in range(120):
        seed = (seed * 1664525 + 1013904223) % (1 << 32)
        numbers.append(seed >> 24)
    return np.array(numbers, np.uint8).view(np.int8).reshape(1, 3, 40)


def test_resource_variables_that_cannot_be_are_refused(tmp_path: Path) -> None:
    wrong = tflite_models.streaming_layer(begins=np.zeros((1, 3, 1, 8), np.int8))
    with pytest.raises(BadModel, match=r"'stream/states' is set to int8\[1, 3, 1, 8\], and read as int8\[1, 4, 1, 8\]"):
        tvm_ext.load(saved_tflite(wrong, tmp_path))
    net = TfliteWriter()
    source = net.input("x", (1, 4))
    seen = net.tensor("seen", (1, 4))
    net.operator("READ_VARIABLE", [source], seen)
    with pytest.raises(BadModel, match=r"READ_VARIABLE_0 uses a variable that no VAR_HANDLE names"):
        tvm_ext.load(saved_tflite(net.finish([seen]), tmp_path))
    net = TfliteWriter()
    source, seen = net.input("x", (1, 4)), net.tensor("seen", (1, 4))
    net.operator("READ_VARIABLE", [tflite_models.handle(net, "v")], seen)
    result = net.operator("ADD", [source, seen], net.tensor("sum", (1, 4)), "AddOptions")
    with pytest.raises(UnsupportedModel, match=r"has 2 subgraphs"):  # nothing calls the other one
        tvm_ext.load(
            saved_tflite(
                net.finish([result], others=[tflite_models.set_once("v", np.zeros((1, 4), np.float32))]), tmp_path
            )
        )


def _assigned(value: Callable[[TfliteWriter], int], read_as: Sequence[int] = (1, 4), dtype: str = "float32") -> bytes:
    """A graph that reads a variable, and one that sets it once: to what `value` makes."""
    net, first = TfliteWriter(), TfliteWriter()
    source = net.input("x", (1, 4))
    tflite_models.call_once(net)
    seen = net.tensor("seen", read_as, dtype)
    net.operator("READ_VARIABLE", [tflite_models.handle(net, "v")], seen)
    tflite_models.assign(first, tflite_models.handle(first, "v"), value(first))
    return net.finish([net.operator("RELU", [source], net.tensor("y", (1, 4)))], others=[first])


def _computed(writer: TfliteWriter) -> int:
    value = writer.constant("begins", np.ones((1, 4), np.float32))
    return writer.operator("RELU", [value], writer.tensor("computed", (1, 4)))


def _four(writer: TfliteWriter) -> int:
    return writer.constant("begins", np.ones((1, 4), np.float32))


def _misread(operands: int) -> bytes:
    net = TfliteWriter()
    source, variable = net.input("x", (1, 4)), tflite_models.handle(net, "v")
    net.operator("READ_VARIABLE", [variable] * operands, net.tensor("seen", (1, 4)))
    return net.finish([net.operator("RELU", [source], net.tensor("y", (1, 4)))])


def _misassigned() -> bytes:
    net = TfliteWriter()
    source, variable = net.input("x", (1, 3)), tflite_models.handle(net, "v")
    seen = net.tensor("seen", (1, 4))
    net.operator("READ_VARIABLE", [variable], seen)
    tflite_models.assign(net, variable, source)
    return net.finish([net.operator("RELU", [seen], net.tensor("y", (1, 4)))])


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (_assigned(_four, dtype="string"), UnsupportedModel, r"variable 'v' has elements of type STRING"),
        (_assigned(_computed), UnsupportedModel,
         r"RELU_1 is in the subgraph that sets variables once, where only constants can be"),
        (_misread(2), BadModel, r"READ_VARIABLE_1 has 2 inputs and 1 outputs"),
        (_misassigned(), BadModel, r"'v' is assigned float32\[1, 3\], and read as float32\[1, 4\]"),
    ],
)  # fmt: skip
def test_variables_that_cannot_be_states(data: bytes, error: type[Exception], message: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=message):
        tvm_ext.load(saved_tflite(data, tmp_path))


def test_buffers_that_pytorch_changes_are_states(tmp_path: Path) -> None:
    torch = peer("torch")

    class Smoother(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("hidden", torch.full((1, 8), 0.25))
            self.register_buffer("count", torch.zeros(1))
            self.layer = torch.nn.Linear(12, 8)

        def forward(self, x: object) -> object:
            hidden = torch.tanh(self.layer(torch.cat([x, self.hidden], 1)))
            self.hidden.copy_(hidden)
            self.count.add_(1.0)
            return hidden * 2 + self.count

    path = tmp_path / "smoother.pt2"
    torch.export.save(torch.export.export(Smoother(), (torch.zeros(1, 4),)), path)
    package = tvm_ext.build(tvm_ext.load(path), "host", tmp_path / "package", BuildOptions())
    host = package.report["verify"]["host"]
    assert host["passed"] and host["reference"] == "PyTorch", host["refused_by"]
    assert list(package.inputs) == ["x"]
    assert set(updates(package)) == {"hidden", "count"}


def test_names_of_the_functions_of_states_stay_free(tmp_path: Path) -> None:
    """Outputs that are called as the generated functions and numbers are."""
    outputs = ["state_place", "state_bytes", "not_ready", "warm_up_runs", "hn"]
    nodes = [NODE("Add", ["x", "h"], ["hn"]), *(NODE("Mul", ["hn", "x"], [name]) for name in outputs[:-1])]
    model = model_of(nodes, {"x": (1, 2), "h": (1, 2)}, outputs)
    package = tvm_ext.build(tvm_ext.load(saved(model, tmp_path)), "host", tmp_path / "package")
    assert package.report["verify"]["host"]["passed"] and [*package.outputs] == outputs[:-1]
