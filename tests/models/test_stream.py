"""Models with streamed inputs and outputs: the same bits, rows in order and once, and only a few of them held."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

import tvm_ext
from codegen_c.arena.validate import validate
from codegen_c.program.steps import KernelCall, calls, reads, writes
from tests.support.image_networks import image_network
from tests.support.onnx_models import NODE, SMALL_MODELS, model_of, saved, weights
from tests.support.packages import sample
from tests.support.poison import run_poisoned
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions, Package
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.errors import BadOptions, DoesNotFit, PlanRejected, RunFailed
from tvm_ext.core.platform import Platform
from tvm_ext.execution.host_model import host_library
from tvm_ext.execution.instrumented import run_instrumented
from tvm_ext.verification.input_ranges import random_inputs

STREAM = BuildOptions(io="stream", verify=())
PORTS = ("image_in_and_out", "nasty_names", "one_value_under_two_names", "output_that_is_constant", "unused_input")
"""Models that differ in their inputs and outputs, with few operators between them."""
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32)


def built(path: Path, folder: Path, options: BuildOptions = STREAM) -> Package:
    return tvm_ext.build(tvm_ext.load(path), "host", folder, options)


def assert_same_bits(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert list(one) == list(other)
    for name, array in one.items():
        assert array.shape == other[name].shape
        np.testing.assert_array_equal(array.view(np.uint8), other[name].view(np.uint8))


@pytest.mark.parametrize("seed", some_of([2], sweep=[0, 1, 3, 4]))
def test_random_networks_keep_their_bits(seed: int, tmp_path: Path) -> None:
    """Float, where another order of summation would show; as cheap as can be, and as small as can be."""
    path = saved(image_network(seed), tmp_path)
    whole = built(path, tmp_path / "whole", BuildOptions(verify=()))
    inputs = sample(whole)
    expected = whole.run(inputs)
    cheap = built(path, tmp_path / "cheap")
    assert cheap.report["inputs"][0]["stream"]["rows_kept"] <= cheap.report["inputs"][0]["stream"]["rows"]
    assert_same_bits(cheap.run(inputs), expected)
    for fraction in (0.4, 0.6, 0.8):
        try:
            options = BuildOptions(io="stream", ram=int(whole.report["arena_bytes"] * fraction), verify=())
            small = built(path, tmp_path / "small", options)
        except DoesNotFit:
            continue
        assert small.report["arena_bytes"] <= small.report["fit"]["limit_bytes"]
        assert_same_bits(small.run(inputs), expected)
        break


@pytest.mark.parametrize("name", some_of(PORTS, sweep=[name for name in SMALL_MODELS if name not in PORTS]))
def test_every_kind_of_input_and_output(name: str, tmp_path: Path) -> None:
    """Several inputs and outputs, any rank and type, inputs that are outputs: what has no rows comes in one piece."""
    path = saved(SMALL_MODELS[name](), tmp_path)
    whole, streamed = (built(path, tmp_path / o.io, o) for o in (BuildOptions(verify=()), STREAM))
    inputs = sample(whole)
    assert_same_bits(streamed.run(inputs), whole.run(inputs))


@pytest.mark.parametrize("seed", [0, 1, 4])
def test_poison_changes_nothing(seed: int, tmp_path: Path) -> None:
    """Bytes that the plan calls dead are destroyed behind each step, rows of the input too."""
    module = tvm_ext.load(saved(image_network(seed), tmp_path))
    compiled = compile_module(module, Platform.load("host"), BuildOptions(io="stream"))
    inputs = random_inputs({port.source: (port.shape, port.dtype) for port in compiled.interface.inputs}, seed)
    changed, destroyed = run_poisoned(compiled, inputs)
    assert destroyed > 0
    assert_same_bits(run_instrumented(compiled, inputs, lambda *_: None), changed)


def segmentation() -> Any:
    """NCHW with three channels in, five channels of rows out."""
    nodes = [
        NODE("Conv", ["x", "w1"], ["c1"], name="stem", pads=[1, 1, 1, 1]),
        NODE("Relu", ["c1"], ["r1"]),
        NODE("Conv", ["r1", "w2"], ["y"], name="head", pads=[1, 1, 1, 1]),
    ]
    constants = {"w1": weights(8, 3, 3, 3), "w2": weights(5, 8, 3, 3)}
    return model_of(nodes, {"x": (1, 3, 20, 10)}, ["y"], constants)


@pytest.fixture(scope="module")
def image_to_image(tmp_path_factory: pytest.TempPathFactory) -> Package:
    folder = tmp_path_factory.mktemp("stream")
    return built(saved(segmentation(), folder), folder / "out", BuildOptions(io="stream", ram=4000, verify=("host",)))


def test_the_report_says_what_is_held(image_to_image: Package) -> None:
    report = image_to_image.report
    assert report["options"]["io"] == "stream" and report["fit"]["attempts"][0]["method"] == "stream"
    came, went = report["inputs"][0]["stream"], report["outputs"][0]["stream"]
    assert came["rows"] == went["rows"] == 20
    assert came["layout"] == went["layout"] == [0, 2, 3, 1]
    assert 3 <= came["rows_kept"] < 20 and 1 <= went["rows_kept"] < 20
    assert report["arena_bytes"] < 4 * 3 * 20 * 10 + 4 * 8 * 20 * 10
    text = (image_to_image.folder / "README.md").read_text()
    assert f"20 rows of [10][3], of which {came['rows_kept']} are held at a time" in text


@contextmanager
def streaming(
    package: Package, read: Callable[[int, int, int], int], write: Callable[[int, int, int], int]
) -> Iterator[Callable[[], int]]:
    """A run, in this process, of a package of one input and one output.

    The functions get (address of rows, row_begin, row_end).
    """

    class Io(ctypes.Structure):
        _fields_ = (("context", ctypes.c_void_p), ("read", CALLBACK), ("write", CALLBACK))

    io = Io(
        None, CALLBACK(lambda _, rows, begin, end: read(rows, begin, end)),
        CALLBACK(lambda _, rows, begin, end: write(rows, begin, end)),
    )  # fmt: skip
    with TemporaryDirectory() as built_in:
        library = ctypes.CDLL(str(host_library(package.folder, package.interface, Path(built_in))))
        run = getattr(library, package.interface.run)
        run.restype = ctypes.c_int32
        yield lambda: run(ctypes.byref(io))


def test_rows_are_pixels_in_order(image_to_image: Package) -> None:
    """A row of an NCHW image is [columns][channels], as cameras deliver it; rows go out before the last one came."""
    x = sample(image_to_image)["x"]
    pixels = np.ascontiguousarray(x.transpose(0, 2, 3, 1))[0]
    results = np.zeros((20, 10, 5), np.float32)
    events: list[tuple[str, int, int]] = []

    def read(rows: int, begin: int, end: int) -> int:
        events.append(("read", begin, end))
        ctypes.memmove(rows, pixels[begin:end].tobytes(), pixels[begin:end].nbytes)
        return 0

    def write(rows: int, begin: int, end: int) -> int:
        events.append(("write", begin, end))
        ctypes.memmove(results[begin:end].ctypes.data, rows, results[begin:end].nbytes)
        return 0

    with streaming(image_to_image, read, write) as run:
        assert run() == 0
    np.testing.assert_array_equal(results.transpose(2, 0, 1)[None], image_to_image.run({"x": x})["y"])
    for direction in ("read", "write"):
        ranges = [(begin, end) for what, begin, end in events if what == direction]
        assert [row for begin, end in ranges for row in range(begin, end)] == list(range(20))
    assert events.index(("read", 19, 20)) > next(i for i, event in enumerate(events) if event[0] == "write")


@pytest.mark.parametrize(("stops", "status"), [("read", 7), ("write", -3)])
def test_another_answer_ends_the_run(image_to_image: Package, stops: str, status: int) -> None:
    calls: list[tuple[str, int]] = []

    def called(direction: str, end: int) -> int:
        calls.append((direction, end))
        return status if direction == stops and end >= 5 else 0

    with streaming(
        image_to_image, lambda _, begin, end: called("read", end), lambda _, begin, end: called("write", end)
    ) as run:
        assert run() == status
        once = list(calls)
        assert once[-1][0] == stops and once[-1][1] >= 5 > max(end for what, end in once[:-1] if what == stops)
        calls.clear()
        assert run() == status
        assert calls == once, "a run after one that was ended begins anew"


def test_rows_out_of_order_are_refused(tmp_path: Path) -> None:
    """The functions that a run from Python hands over notice generated code that loses its place."""
    package = built(saved(segmentation(), tmp_path), tmp_path / "out", BuildOptions(io="stream", ram=4000, verify=()))
    source = package.folder / f"{package.interface.model}.c"
    text = source.read_text()
    broken = text.replace("row = 0; row < 2;", "row = 1; row < 3;", 1)
    assert broken != text
    source.write_text(broken)
    with pytest.raises(RunFailed, match="returned 1000 on the host"):
        package.run(sample(package))


def test_the_self_test_tells_rows_that_do_not_come(image_to_image: Package, tmp_path: Path) -> None:
    """Once where they ought to come, and at both places of the C where it is to fail when they do."""
    folder = tmp_path / "copy"
    shutil.copytree(image_to_image.folder, folder)
    source = folder / f"{image_to_image.interface.model}.c"
    text = source.read_text()
    broken = re.sub(r"status = io->write_y\(.*?\);", "status = 0;", text, flags=re.DOTALL)
    for changed, says in ((text, "PASS 1 vectors"), (broken, "output y, element 0; 99 elements differ")):
        source.write_text(changed)
        done = subprocess.run(["make", "-B", "selftest"], cwd=folder, capture_output=True, text=True, check=False)
        assert says in done.stdout, done.stdout + done.stderr


def test_the_validator_knows_rows_that_came(tmp_path: Path) -> None:
    """A ring of the input that is one row short has lost a row when it is read."""
    module = tvm_ext.load(saved(segmentation(), tmp_path))
    compiled = compile_module(module, Platform.load("host"), BuildOptions(io="stream", ram=4000))
    program, plan, name = compiled.program, compiled.plan, "x_nhwc"
    tensor, place = program.tensors[name], plan.placements[name]
    assert tensor.ring is not None
    ring = replace(tensor.ring, stored=tensor.ring.stored - 1)
    short = replace(program, tensors={**program.tensors, name: replace(tensor, ring=ring)})
    size = place.num_bytes // tensor.ring.stored * ring.stored
    placements = {**plan.placements, name: replace(place, num_bytes=size)}
    with pytest.raises(PlanRejected, match=r"reads row .* of x_nhwc, which its bytes do not hold"):
        validate(short, replace(plan, placements=placements))


def test_moves_between_memories_leave_streams_alone(shared_models: Path) -> None:
    """Tensors that the application holds are in no memory to be moved from."""
    module = tvm_ext.load(shared_models / "resnet_int8.onnx")
    compiled = compile_module(module, Platform.load("always_on"), BuildOptions(io="stream"))
    program = compiled.program
    ports = {*program.inputs, *program.outputs}
    touching = [inner for step in program.steps for inner in calls(step) if ports & {*reads(inner), *writes(inner)}]
    assert len(touching) == 2
    assert all(isinstance(inner, KernelCall) and inner.implementation.callback for inner in touching)


def test_an_input_of_which_all_is_needed_comes_whole(tmp_path: Path) -> None:
    nodes = [NODE("Flatten", ["x"], ["flat"]), NODE("Softmax", ["flat"], ["y"])]
    path = saved(model_of(nodes, {"x": (1, 3, 4, 5)}, ["y"]), tmp_path)
    streamed, whole = built(path, tmp_path / "s"), built(path, tmp_path / "w", BuildOptions(verify=()))
    stream = streamed.report["inputs"][0]["stream"]
    assert stream["rows_kept"] == stream["rows"] == stream["rows_per_call"]
    assert_same_bits(streamed.run(sample(whole)), whole.run(sample(whole)))


def test_a_dense_layer_takes_rows_as_they_come(tmp_path: Path) -> None:
    nodes = [NODE("Flatten", ["x"], ["flat"]), NODE("Gemm", ["flat", "w"], ["y"])]
    path = saved(model_of(nodes, {"x": (1, 3, 4, 5)}, ["y"], {"w": weights(60, 7)}), tmp_path)
    streamed, whole = built(path, tmp_path / "s"), built(path, tmp_path / "w", BuildOptions(verify=()))
    stream = streamed.report["inputs"][0]["stream"]
    assert stream["rows_kept"] < stream["rows"]
    assert_same_bits(streamed.run(sample(whole)), whole.run(sample(whole)))


def test_nothing_fits_says_what_was_tried(tmp_path: Path) -> None:
    path = saved(segmentation(), tmp_path)
    with pytest.raises(DoesNotFit, match=r"may give 100 B.*Best of each method: stream: \d+ B"):
        built(path, tmp_path / "out", BuildOptions(io="stream", ram=100))


def test_what_does_not_go_together() -> None:
    with pytest.raises(BadOptions, match="with io = 'stream' inputs and outputs are not there"):
        BuildOptions(io="stream", pin={"x": 0})
    with pytest.raises(BadOptions, match=r"inside tvm\.compile use io = 'arena' or 'caller'"):
        tvm_ext.relax_pipeline("host", BuildOptions(io="stream"))
