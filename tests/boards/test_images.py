"""Models as images on boards: run from two addresses, replaced without linking, refused where they do not belong."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

import codegen_c
import tvm_ext
from tests.support.onnx_models import SMALL_MODELS, saved
from tests.support.state_models import gate
from tvm_ext import BuildOptions, Package, Platform
from tvm_ext.building.image import Image, places
from tvm_ext.command_line.main import app
from tvm_ext.core.errors import (
    BadOptions,
    BuildFailed,
    DoesNotFit,
    RunFailed,
    UnsupportedModel,
    VerificationFailed,
)
from tvm_ext.core.toolchain import compile_objects, link_elf
from tvm_ext.execution.board import Placed, run_qemu
from tvm_ext.execution.samples import RunResult

pytestmark = pytest.mark.board
PLACE = 0x20_0000
IMAGE = BuildOptions(context="caller", relocatable_image=True, memories="default", name="net", verify=())


def network(seed: int, *, channels: int = 4, function: str = "Relu") -> onnx.ModelProto:
    """Conv, an activation, mean over the image, Softmax: kernels of ours, TVM's, and exp."""
    weights = np.random.default_rng(seed).standard_normal((channels, 2, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node(function, ["c"], ["a"]),
        helper.make_node("GlobalAveragePool", ["a"], ["m"]),
        helper.make_node("Softmax", ["m"], ["y"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, channels, 1, 1])],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def built(model: onnx.ModelProto, folder: Path, platform: Platform | str = "cortex_m4", **options: object) -> Package:
    folder.mkdir(exist_ok=True)
    module = tvm_ext.load(saved(model, folder, "net"))
    return tvm_ext.build(module, platform, folder / "package", BuildOptions(**{**vars(IMAGE), **options}))


def run(firmware: Package, image: Package, sample: dict[str, np.ndarray], place: int = PLACE) -> np.ndarray:
    placed = Placed(file=image.folder / "net.img", address=place)
    elf = firmware.folder / "net_image.elf"
    return run_qemu(elf, firmware.platform, firmware.interface, [sample], placed=placed).outputs[0]["y"]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Package:
    return built(network(1), tmp_path_factory.mktemp("image") / "first")


@pytest.fixture
def sample() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(9).standard_normal((1, 2, 8, 8)).astype(np.float32)}


@pytest.mark.parametrize(
    ("model", "platform", "io"),
    [
        (SMALL_MODELS["branches"], "cortex_m4", "arena"),
        (SMALL_MODELS["image_in_and_out"], "cortex_m55", "stream"),
        (gate, "cortex_m4", "caller"),
    ],
)
def test_an_image_gives_what_the_library_gives(
    model: Callable[[], onnx.ModelProto], platform: str, io: str, tmp_path: Path
) -> None:
    package = built(model(), tmp_path / "net", platform, io=io, verify=("host", "qemu"))
    ran, library = package.report["image"]["runs"], package.report["verify"]["qemu"]
    assert len({run["address"] for run in ran}) == 2 and len({run["memory"] for run in ran}) == 2
    assert all(run["passed"] and run["elements"] == library["elements"] for run in ran)
    assert all(abs(run["instructions"] - library["instructions"]) < 300 + library["instructions"] // 20 for run in ran)
    assert (package.folder / "net.img").stat().st_size == package.report["image"]["num_bytes"]


def test_a_network_that_was_trained_again_takes_the_place(
    first: Package, sample: dict[str, np.ndarray], tmp_path: Path
) -> None:
    """The firmware is that of the first one; what it computes is what the second's library does."""
    second = built(network(2), tmp_path / "second")
    before, after = run(first, first, sample), run(first, second, sample)
    assert np.abs(before - first.run(sample)["y"]).max() <= 1e-6
    assert np.abs(after - second.run(sample)["y"]).max() <= 1e-6
    assert np.abs(before - after).max() > 1e-3


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (lambda image: image[:200] + bytes([image[200] ^ 1]) + image[201:], 106),
        (lambda image: b"\xff" * len(image), 102),
        (lambda image: image[:-32], 106),
    ],
)
def test_a_changed_image_is_refused(
    change: Callable[[bytes], bytes], status: int, first: Package, sample: dict[str, np.ndarray], tmp_path: Path
) -> None:
    changed = tmp_path / "a, b.img"
    changed.write_bytes(change((first.folder / "net.img").read_bytes()))
    with pytest.raises(RunFailed, match=f"the image is rejected: -{status}"):
        run_qemu(
            first.folder / "net_image.elf", first.platform, first.interface, [sample],
            placed=Placed(file=changed, address=PLACE),
        )  # fmt: skip


def test_what_is_not_this_firmware_s_is_refused(first: Package, sample: dict[str, np.ndarray], tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="the image is rejected: -101"):
        run(first, first, sample, PLACE + 8)
    with pytest.raises(RunFailed, match="the image is rejected: -107"):
        run(first, built(network(1, channels=5), tmp_path / "five"), sample)
    with pytest.raises(RunFailed, match="the image is rejected: -105"):
        run(first, built(network(1), tmp_path / "helium", "cortex_m55"), sample)


@pytest.mark.parametrize(
    ("core", "bits"),
    [("cortex-m0plus", 0), ("cortex-m3", 1 << 8), ("cortex-m23", 1 << 10), ("cortex-m33+nodsp", 1 << 8 | 1 << 10)],
)
def test_the_baseline_of_armv8_claims_no_instructions_of_armv7(core: str, bits: int, tmp_path: Path) -> None:
    """A firmware refuses an image that needs a bit which the firmware lacks; bits 8 and 10 are v7-M and v8-M."""
    header = Path(codegen_c.__file__).parent / "runtime" / "tvm_ext_image.h"
    (tmp_path / "bits.c").write_text(
        f'#include "{header}"\n_Static_assert((TVM_EXT_IMAGE_EXTENSIONS & 0xFF00u) == {bits}u, "");\n'
    )
    command = ["arm-none-eabi-gcc", f"-mcpu={core}", "-mthumb", "-fsyntax-only", str(tmp_path / "bits.c")]
    subprocess.run(command, check=True, capture_output=True)


def test_an_instance_that_needs_more_is_refused(first: Package, sample: dict[str, np.ndarray], tmp_path: Path) -> None:
    """Same inputs and outputs, a larger arena: the firmware's instances are too small."""
    more = network(1)
    weights = np.ones((8, 4, 1, 1), np.float32), np.ones((4, 8, 1, 1), np.float32)
    more.graph.initializer.extend(onnx.numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights))
    more.graph.node[1].output[0] = "r"
    for index, (taken, given) in enumerate([("r", "s"), ("s", "a")]):
        more.graph.node.insert(2 + index, helper.make_node("Conv", [taken, f"w{index}"], [given]))
    with pytest.raises(RunFailed, match="the image is rejected: -108"):
        run(first, built(more, tmp_path / "more"), sample)


def test_firmware_holds_nothing_of_the_model(first: Package) -> None:
    names = subprocess.run(
        ["arm-none-eabi-nm", str(first.folder / "net_image.elf")], capture_output=True, text=True, check=True
    ).stdout
    defined = {line.split()[-1] for line in names.splitlines() if line.split()[-2] in "TtRrDdBb"}
    assert {"net_load", "net_run", "tvm_ext_image_check"} <= defined
    assert not [name for name in defined if "weight" in name or "conv" in name.lower()]


def test_make_makes_the_same_image(first: Package) -> None:
    image = first.folder / "net.img"
    before = image.read_bytes()
    image.unlink()
    subprocess.run(["make", "image"], cwd=first.folder, capture_output=True, check=True)
    assert image.read_bytes() == before
    subprocess.run(["make", "clean"], cwd=first.folder, capture_output=True, check=True)
    image.write_bytes(before)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("static int count; int *net_run(void); int *net_run(void) { return &count; }", "writes to variables"),
        (
            "extern const int place; const int *const table[] = {&place}; const int *const *net_run(void);\n"
            "const int place = 1; const int *const *net_run(void) { return table; }",
            "writes to variables|absolute addresses",
        ),
    ],
)
def test_what_cannot_lie_anywhere_is_not_linked(text: str, complaint: str, first: Package, tmp_path: Path) -> None:
    (tmp_path / "net.c").write_text(text + "\n__asm__(\".pushsection .tvm_ext_image.entries, \\\"a\\\"\\n"
                                    '.4byte net_run - .\\n.popsection\\n");\n')  # fmt: skip
    toolchain = first.platform.toolchain
    objects = compile_objects([tmp_path / "net.c"], tmp_path, toolchain, flags=["-fpie", "-fvisibility=hidden"])
    with pytest.raises(BuildFailed, match=complaint):
        link_elf(
            objects, tmp_path / "net.elf", toolchain, script=first.folder / "image" / "link.ld", flags=["-Wl,-pie"]
        )


def test_an_image_that_differs_from_the_library_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def off_by_one(*given: Any, **options: Any) -> RunResult:
        ran = run_qemu(*given, **options)
        return replace(ran, outputs=tuple({name: array + 1 for name, array in one.items()} for one in ran.outputs))

    monkeypatch.setattr("tvm_ext.building.image.run_qemu", off_by_one)
    with pytest.raises(VerificationFailed, match=r"image at address 0x[0-9a-f]+: outputs differ from"):
        built(network(1), tmp_path / "net", verify=("host", "qemu"))
    assert not (tmp_path / "net" / "package").exists()


def test_an_image_without_room_says_so(first: Package) -> None:
    image = Image(file=first.folder / "net.img", elf=first.folder / "net_image.elf", num_bytes=1 << 30, sha256="")
    with pytest.raises(DoesNotFit, match=r"net\.img: 1073741824 B do not fit at 2 addresses"):
        places(image, first.platform)


def test_functions_bound_to_addresses_are_named(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=r"the model calls sinf of the C library"):
        built(network(1, function="Sin"), tmp_path / "sin")
    built(network(1, function="Tanh"), tmp_path / "tanh")


def test_a_first_core_with_flags_of_its_own(tmp_path: Path) -> None:
    """Image and firmware are linked for the core: GCC finds no C library for two -mcpu."""
    dual = Platform.load("dual_m33")
    larger = replace(dual, processors=(dual.processors[1], dual.processors[0]))
    package = built(network(1), tmp_path / "larger", larger, verify=("host",), processors=("cpu1",))
    assert package.report["image"]["file"] == "net.img"


def test_images_need_instances_and_a_board(tmp_path: Path) -> None:
    with pytest.raises(BadOptions, match="needs context = 'caller'"):
        BuildOptions(relocatable_image=True)
    with pytest.raises(BadOptions, match="relocatable_image: host has no board"):
        built(network(1), tmp_path / "host", "host")
    with pytest.raises(BadOptions, match="image = 3: give True or False"):
        BuildOptions(relocatable_image=3, context="caller")  # type: ignore[arg-type]


def test_the_command_line_makes_one(tmp_path: Path) -> None:
    model = saved(network(1), tmp_path, "net")
    line = ["compile", str(model), "-p", "cortex_m4", "-o", str(tmp_path / "out"), "--verify", "host"]
    done = CliRunner().invoke(app, [*line, "--context", "caller", "--relocatable-image"])
    assert done.exit_code == 0, done.output
    image = Package.load(tmp_path / "out").report["image"]
    assert image["file"] == "net.img" and image["runs"] is None
    assert "has not been run" in (tmp_path / "out" / "README.md").read_text()
    assert "net.img" in done.stdout
