"""A package below a CMake project: the parent's toolchain decides, and nothing of ours reaches the parent's sources."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

import tvm_ext
from codegen_c.emit.forms.form import NEEDED_FLAGS
from tests.support.bundles import written
from tests.support.onnx_models import SMALL_MODELS, saved
from tvm_ext import BuildOptions, Platform

pytestmark = pytest.mark.skipif(shutil.which("cmake") is None, reason="no cmake")
_CROSS = (
    "-DCMAKE_SYSTEM_NAME=Generic", "-DCMAKE_C_COMPILER=arm-none-eabi-gcc", "-DCMAKE_CXX_COMPILER=arm-none-eabi-g++",
    "-DCMAKE_EXE_LINKER_FLAGS=--specs=nosys.specs",
)  # fmt: skip
_HARD = "-mcpu=cortex-m7 -mthumb -mfloat-abi=hard -mfpu=fpv5-sp-d16"


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a package for a Cortex-M7 with a double FPU, whose flags no other processor takes."""
    return _built("cortex_m7", tmp_path_factory.mktemp("net"))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a package that two cores share: some of its sources have flags of their own."""
    return _built("dual_m33", tmp_path_factory.mktemp("shared"))


def _built(platform: str, folder: Path) -> Path:
    model = saved(SMALL_MODELS["image_in_and_out"](), folder, "net")
    return tvm_ext.build(tvm_ext.load(model), platform, folder / "package", BuildOptions(verify=(), name="net")).folder


def _product(package: Path, work: Path, options: Sequence[str] = ()) -> dict[str, list[list[str]]]:
    """A C++ program with the package below it, built. Words of the compile commands of each file, by its name."""
    (work / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(fw C CXX)\n"
        f"add_subdirectory({package} package)\nadd_executable(fw main.cpp)\n"
        f"target_link_libraries(fw PRIVATE {_library(package)})\n"
    )
    servers = [one for one in package.glob("*_cpu1.c")]
    serve = "net_serve_cpu1();" if servers else ""
    (work / "main.cpp").write_text(
        f'#include "net.h"\nextern "C" void serve(void);\nvoid serve(void) {{ {serve} }}\n'
        "int main(int argc, char **) { return argc > 1 ? (int)net_run() : 0; }\n"
    )
    out = work / "out"
    _run(["cmake", "-S", work, "-B", out, "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", *options])
    _run(["cmake", "--build", out])
    found: dict[str, list[list[str]]] = {}
    for one in json.loads((out / "compile_commands.json").read_text()):
        found.setdefault(Path(one["file"]).name, []).append(one["command"].split())
    return found


def _library(package: Path) -> str:
    return next(package.glob("lib*.a")).name.removeprefix("lib").removesuffix(".a")


def _run(command: Sequence[str | Path]) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _machine(words: Sequence[str]) -> list[str]:
    return [word for word in words if word.startswith("-m")]


@pytest.mark.board
@pytest.mark.parametrize("flags", ["", _HARD], ids=["soft", "single"])
def test_a_parent_of_another_abi(flags: str, net: Path, tmp_path: Path) -> None:
    """ld said: uses VFP register arguments, fw does not."""
    given = [f"-DCMAKE_C_FLAGS={flags}", f"-DCMAKE_CXX_FLAGS={flags}"] if flags else []
    commands = _product(net, tmp_path, [*_CROSS, *given])
    assert _machine(commands["main.cpp"][0]) == flags.split()
    assert _machine(commands["net.c"][0]) == flags.split()
    assert {*NEEDED_FLAGS} <= {*commands["net.c"][0]} and not {*NEEDED_FLAGS} & {*commands["main.cpp"][0]}


def test_a_unit_test_of_the_firmware_on_this_machine(net: Path, tmp_path: Path) -> None:
    """cc said: unrecognized command-line option '-mthumb'."""
    commands = _product(net, tmp_path)
    assert not any(_machine(words) for every in commands.values() for words in every)
    _run([tmp_path / "out" / "fw", "run"])


@pytest.mark.board
def test_our_flags_where_they_are_asked_for(net: Path, tmp_path: Path) -> None:
    commands = _product(net, tmp_path, [*_CROSS, f"-DCMAKE_CXX_FLAGS={_HARD}", "-DNET_TARGET=ON"])
    assert _machine(commands["net.c"][0]) == ["-mcpu=cortex-m7", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv5-d16"]
    assert _machine(commands["main.cpp"][0]) == _HARD.split()


def test_the_host_package_leaves_the_processor_to_its_parent(tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    commands = _product(_built("host", tmp_path / "host"), tmp_path)
    assert not any("-march=native" in words for every in commands.values() for words in every)
    _run([tmp_path / "out" / "fw", "run"])


def test_two_cores_on_this_machine(shared: Path, tmp_path: Path) -> None:
    """Sources of the other core are compiled as the rest; their flags mean nothing here."""
    commands = _product(shared, tmp_path)
    assert len(list(shared.glob("*_cpu1.c"))) == 1
    assert not any(_machine(words) for every in commands.values() for words in every)


@pytest.mark.board
def test_two_cores_below_a_parent_for_boards(shared: Path, tmp_path: Path) -> None:
    """Sources of the other core keep their flags: the parent's are those of the first one."""
    flags = " ".join(Platform.load("dual_m33").flags_of(Platform.load("dual_m33").processor))
    commands = _product(shared, tmp_path, [*_CROSS, f"-DCMAKE_C_FLAGS={flags}", f"-DCMAKE_CXX_FLAGS={flags}"])
    other = Platform.load("dual_m33").processor_named("cpu1")
    own = [one for one in Platform.load("dual_m33").flags_of(other) if one.startswith("-m")]
    name = next(shared.glob("*_cpu1.c")).name
    assert _machine(commands[name][0])[-len(own) :] == own
    assert _machine(commands["main.cpp"][0]) == flags.split()


@pytest.mark.board
def test_an_installed_package_asks_nothing_of_its_users(net: Path, tmp_path: Path) -> None:
    shutil.copytree(net, tmp_path / "net")
    out = tmp_path / "out"
    _run(["cmake", "-S", tmp_path / "net", "-B", out])
    _run(["cmake", "--build", out, "--target", "net"])
    _run(["cmake", "--install", out, "--prefix", tmp_path / "installed"])
    exported = "".join(path.read_text() for path in (tmp_path / "installed").rglob("*.cmake"))
    assert "IMPORTED_LOCATION" in exported and "INTERFACE_INCLUDE_DIRECTORIES" in exported
    assert "COMPILE_OPTIONS" not in exported and "-mthumb" not in exported


def test_a_bundle(tmp_path: Path) -> None:
    models = {"net": SMALL_MODELS["image_in_and_out"]()}
    file = written(tmp_path, models, {"net": {"file": "net.onnx"}})
    package = tvm_ext.bundle(file, "cortex_m7", tmp_path / "bundle", verify=())
    commands = _product(package.folder, tmp_path)
    assert not any(_machine(words) for every in commands.values() for words in every)
    _run([tmp_path / "out" / "fw", "run"])


def test_two_packages_below_one_parent(net: Path, tmp_path: Path) -> None:
    """No variable of one reaches the other, or the cache of their parent."""
    model = saved(SMALL_MODELS["branches"](), tmp_path, "other")
    other = tvm_ext.build(tvm_ext.load(model), "host", tmp_path / "other", BuildOptions(verify=())).folder
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(fw C)\n"
        f"add_subdirectory({net} net)\nadd_subdirectory({other} other)\n"
        "foreach(name TARGET LANGUAGE WARNINGS OPTIMIZE GNU PROJECT)\n    if(DEFINED ${name})\n"
        '        message(FATAL_ERROR "${name} is set")\n    endif()\nendforeach()\n'
        "add_executable(fw main.c)\ntarget_link_libraries(fw PRIVATE net other)\n"
    )
    (tmp_path / "main.c").write_text(
        '#include "net.h"\n#include "other.h"\nint main(void) { return (int)(net_run() + other_run()); }\n'
    )
    _run(["cmake", "-S", tmp_path, "-B", tmp_path / "out"])
    _run(["cmake", "--build", tmp_path / "out"])
    _run([tmp_path / "out" / "fw"])
