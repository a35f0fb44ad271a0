"""Streamed inputs in patches: rows are asked for again, strip by strip, and not a bit of the outputs changes."""

from __future__ import annotations

import ctypes
import json
import re
import shutil
import subprocess
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest

import tvm_ext
from benchmarks import zoo
from codegen_c.arena.validate import validate
from codegen_c.program.steps import RowSteps
from tests.support.image_networks import image_network
from tests.support.kinds import image
from tests.support.onnx_models import NODE, model_of, saved, weights
from tests.support.packages import sample
from tests.support.poison import run_poisoned
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions, Package
from tvm_ext.compilation.model_forms import forms_of, streamed_forms
from tvm_ext.compilation.pipeline import compile_module, fitter_of
from tvm_ext.core.errors import BadOptions, BadPackage, DoesNotFit, PlanRejected
from tvm_ext.core.platform import Platform
from tvm_ext.execution.host_model import host_library
from tvm_ext.execution.instrumented import run_instrumented
from tvm_ext.fitting.methods import fit_methods
from tvm_ext.fitting.next_try import Try
from tvm_ext.verification.input_ranges import random_inputs

RAM = 5_500
"""Bytes that rows alone do not come to, of the network of `package`."""
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int32] * 4)
WRITES = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int32] * 2)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return image(14, int8=True, aspect=6)(tmp_path_factory.mktemp("network"))


@pytest.fixture(scope="module")
def package(network: Path, tmp_path_factory: pytest.TempPathFactory) -> Package:
    options = BuildOptions(io="stream", reread=True, ram=RAM, verify=("host",))
    return tvm_ext.build(tvm_ext.load(network), "cortex_m4", tmp_path_factory.mktemp("stream_patches") / "out", options)


def test_the_report_says_which_columns_are_asked_for(package: Package) -> None:
    report = package.report
    assert report["fit"]["attempts"][-1]["method"] == "patches" and report["verify"]["host"]["passed"]
    (port,) = report["inputs"]
    strips, columns = port["stream"]["strips"], port["shape"][port["stream"]["layout"][2]]
    assert len(strips) > 1 and strips[0][0] == 0 and strips[-1][1] == columns
    assert all(begin < end_before for (_, end_before), (begin, _) in pairwise(strips)), "halos"
    assert report["arena_bytes"] <= RAM and port["stream"]["rows_kept"] < port["stream"]["rows"]
    for name in (f"{package.interface.model}.h", "README.md"):
        said = " ".join((package.folder / name).read_text().replace("*", " ").split())
        assert f"A run reads its rows {len(strips)} times, each time from the first row on" in said
        assert ", ".join(f"[{begin}, {end})" for begin, end in strips) in said


@pytest.mark.parametrize("seed", some_of([14], sweep=[6, 9, 17]))
def test_random_float_networks_keep_their_bits(seed: int, tmp_path: Path) -> None:
    """Float, where another order of summation would show; with dead bytes destroyed behind each step."""
    module, host = tvm_ext.load(saved(image_network(seed, aspect=6), tmp_path)), Platform.load("host")
    whole = compile_module(module, host, BuildOptions())
    with pytest.raises(DoesNotFit) as raised:
        compile_module(module, host, BuildOptions(io="stream", ram=1))
    assert "--reread reads the rows of the input once for each strip" in str(raised.value)
    by_rows = min(bytes_ for method, bytes_ in raised.value.least_bytes.items() if method.startswith("stream"))
    small = compile_module(module, host, BuildOptions(io="stream", reread=True, ram=by_rows * 3 // 4))
    assert small.attempts[-1].method == "patches" and small.interface.inputs[0].stream
    assert len(small.interface.inputs[0].stream.strips) > 1
    inputs = random_inputs({port.source: (port.shape, port.dtype) for port in whole.interface.inputs}, seed)
    expected = run_instrumented(whole, inputs, lambda *_: None)
    found, destroyed = run_poisoned(small, inputs)
    assert destroyed > 0 and found.keys() == expected.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array.view(np.uint8), expected[name].view(np.uint8))


def test_integers_are_those_of_the_whole(package: Package, network: Path, tmp_path: Path) -> None:
    whole = tvm_ext.build(tvm_ext.load(network), "cortex_m4", tmp_path / "whole", BuildOptions(verify=()))
    for seed in range(3):
        inputs = sample(whole, seed)
        expected = whole.run(inputs)
        for name, array in package.run(inputs).items():
            np.testing.assert_array_equal(array, expected[name])


def test_rows_of_strips_are_asked_for_in_order(package: Package, tmp_path: Path) -> None:
    """Each strip from its first row on, each row once, pixels of the columns alone one behind the other."""
    (port,), (out,) = package.interface.inputs, package.interface.outputs
    assert port.stream is not None
    inputs = sample(package)
    held = port.handed_over(inputs[port.source]).reshape(port.stream.rows, port.num_columns, -1)
    asked: list[tuple[int, int, int, int]] = []
    made = np.zeros(out.num_elements, out.dtype)

    def read(_: int, rows: int, *bounds: int) -> int:
        begin, end, first, last = bounds
        asked.append((begin, end, first, last))
        columns = np.ascontiguousarray(held[begin:end, first:last])
        ctypes.memmove(rows, columns.ctypes.data, columns.nbytes)
        return 0

    def write(_: int, rows: int, begin: int, end: int) -> int:
        assert out.stream is not None
        size = made.nbytes // out.stream.rows
        ctypes.memmove(made.ctypes.data + begin * size, rows, (end - begin) * size)
        return 0

    class Io(ctypes.Structure):
        _fields_ = (("context", ctypes.c_void_p), ("read", CALLBACK), ("write", WRITES))

    library = ctypes.CDLL(str(host_library(package.folder, package.interface, tmp_path)))
    io = Io(None, CALLBACK(read), WRITES(write))
    assert getattr(library, package.interface.run)(ctypes.byref(io)) == 0
    np.testing.assert_array_equal(out.taken_back(made), package.run(inputs)[out.source])
    strips = list(dict.fromkeys((first, last) for *_, first, last in asked))
    assert strips == [*port.stream.strips]
    for strip in strips:
        rows = [(begin, end) for begin, end, *columns in asked if tuple(columns) == strip]
        assert rows[0][0] == 0 and all(one[1] == other[0] for one, other in pairwise(rows))
    turns = [columns for *_, first, last in asked if (columns := (first, last))]
    assert sum(one != other for one, other in pairwise(turns)) == len(strips) - 1, "one by one"


def test_the_self_test_tells_columns_that_do_not_come(package: Package, tmp_path: Path) -> None:
    """It refuses in each strip, too; other columns than those it expects are out of order."""
    folder = tmp_path / "copy"
    shutil.copytree(package.folder, folder)
    source = folder / f"{package.interface.model}.c"
    text = source.read_text()
    (port,) = package.interface.inputs
    assert port.stream is not None
    first, last = port.stream.strips[1]
    asking = rf"(io->read_{port.name}\([^;]*?), {first}, {last}\);"
    shifted = re.sub(asking, rf"\1, {first - 1}, {last - 1});", text, flags=re.DOTALL)
    assert shifted != text
    for changed, says in ((text, "PASS"), (shifted, "1000")):
        source.write_text(changed)
        done = subprocess.run(["make", "-B", "selftest"], cwd=folder, capture_output=True, text=True, check=False)
        assert says in done.stdout, done.stdout + done.stderr


def test_rows_that_are_pushed_come_once(package: Package, tmp_path: Path) -> None:
    model = package.interface.model
    (tmp_path / "main.c").write_text(f'#include "{model}_push.h"\n')
    command = ["gcc", "-fsyntax-only", f"-I{package.folder}", "main.c"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "pushed rows come once. Compile the model without --reread" in done.stderr


def test_rows_that_come_once_are_never_asked_for_again(network: Path) -> None:
    """Without the option no strip has rows of the input; later layers may run in patches."""
    module, board = tvm_ext.load(network), Platform.load("cortex_m4")
    with pytest.raises(DoesNotFit) as raised:
        compile_module(module, board, BuildOptions(io="stream", ram=1))
    compiled = compile_module(module, board, BuildOptions(io="stream", ram=raised.value.nearest_bytes))
    (port,) = compiled.interface.inputs
    assert port.stream is not None and port.stream.strips == ()
    assert sum(bool(call.implementation.callback) for call in compiled.program.kernel_calls()) == 2


def test_where_rows_alone_fit_they_come_once(network: Path) -> None:
    module, board = tvm_ext.load(network), Platform.load("cortex_m4")
    plain = compile_module(module, board, BuildOptions(io="stream"))
    again = compile_module(module, board, BuildOptions(io="stream", reread=True))
    assert again.sources() == plain.sources() and again.plan.arena_bytes == plain.plan.arena_bytes


def test_only_streamed_inputs_are_read_again() -> None:
    with pytest.raises(BadOptions, match=r"with io = 'arena' no rows of inputs are asked for\. Choose io = 'stream'"):
        BuildOptions(reread=True)


def test_the_validator_knows_columns_that_came(network: Path) -> None:
    """A ring of a strip of the input that is one row short has lost a row when it is read."""
    compiled = compile_module(
        tvm_ext.load(network), Platform.load("cortex_m4"), BuildOptions(io="stream", reread=True, ram=RAM)
    )
    program, plan = compiled.program, compiled.plan
    reads = [
        call for call in program.kernel_calls() if call.implementation.callback and call.inputs[0] in program.inputs
    ]
    tensor = next(made for call in reads if (made := program.tensors[call.outputs[0]]).ring)
    assert tensor.ring is not None
    ring, place = replace(tensor.ring, stored=tensor.ring.stored - 1), plan.placements[tensor.name]
    short = replace(program, tensors={**program.tensors, tensor.name: replace(tensor, ring=ring)})
    size = place.num_bytes // tensor.ring.stored * ring.stored
    placements = {**plan.placements, tensor.name: replace(place, num_bytes=size)}
    with pytest.raises(PlanRejected, match=rf"reads row .* of {tensor.name}, which its bytes do not hold"):
        validate(short, replace(plan, placements=placements))


@pytest.mark.parametrize("strips", [[[0, 400]], [[8, 8]], [[-1, 8]], [[3, 1]], "all"])
def test_a_report_with_columns_that_there_are_not(package: Package, tmp_path: Path, strips: object) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(package.folder, folder)
    report = json.loads((folder / "report.json").read_text())
    report["inputs"][0]["stream"]["strips"] = strips
    (folder / "report.json").write_text(json.dumps(report))
    with pytest.raises(BadPackage, match=r"report\.json"):
        Package.load(folder)


def test_a_single_row_of_a_call_has_code(tmp_path: Path) -> None:
    """First calls of a sequence may compute fewer rows: pairs of rows of MobileNetV1's depthwise layers never ended."""
    path = tmp_path / "net.onnx"
    onnx.save(zoo.build("mobilenet_v1_025_96_int8"), path)
    options = BuildOptions(io="stream", reread=True, ram=8_900)
    compiled = compile_module(tvm_ext.load(path), Platform.load("cortex_m4"), options)
    single = 0
    for step in compiled.program.steps:
        for call in step.calls if isinstance(step, RowSteps) else ():
            made = step.body[call.operator].implementation
            if (call.end - call.begin) % 2 and "DEFINE_STRIP3" in made.function.helpers:
                single += 1
                assert "count > done" in made.function.helpers
    assert single


def test_no_strip_begins_before_another_one_has_ended(tmp_path: Path) -> None:
    """Whatever runs behind them: rows of a joined result could go on while strips are asked for by turns."""
    nodes = [
        NODE("Conv", ["x", "w"], ["c"], pads=[2, 0, 0, 2]),
        NODE("AveragePool", ["c"], ["p"], kernel_shape=[1, 5], strides=[2, 3]),
        NODE("Conv", ["p", "v"], ["q"], group=2, pads=[0, 2, 0, 2]),
        NODE("Flatten", ["q"], ["y"]),
    ]
    constants = {"w": weights(8, 1, 3, 3), "v": weights(2, 4, 1, 5)}
    module = tvm_ext.load(saved(model_of(nodes, {"x": (1, 1, 15, 27)}, ["y"], constants), tmp_path))
    platform, options = Platform.load("host"), BuildOptions(io="stream", reread=True)
    fitter = fitter_of(streamed_forms(forms_of(module, platform, options, None), options), platform, options)
    (method,) = (one for one in fit_methods(options) if one.name == "patches")
    num_strips = 0
    for index in range(len(fitter.offers(method))):
        compiled = fitter.compiled(method, Try(method=method.name, index=index), options)
        steps = compiled.program.steps if compiled else ()
        for step in (step for step in steps if isinstance(step, RowSteps)):
            asked = [call.inputs for call in step.body if call.implementation.callback and call.inputs == ("x",)]
            assert len(asked) <= 1, (index, step.name)
            num_strips += len(asked)
    assert num_strips > 1
