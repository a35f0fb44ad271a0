"""Packages whose files were changed: report.json and platform.json say what cannot be, or what the C does not."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import tvm_ext
from tests.support.onnx_models import NODE, model_of, saved, weights
from tests.support.state_models import counter
from tvm_ext import BuildOptions, Package
from tvm_ext.core.errors import BadPackage, TvmExtError
from tvm_ext.report.read_report import read_report
from tvm_ext.report.tables import report_tables

HOSTILE: list[Any] = [
    None, True, -1, 0, 3, 2**31, 10**30, 0.5, float("inf"), float("nan"), "", "x", "../../x", "/etc/passwd", "a\0b",
    "[/bold]", "int32_t x; int main", "é" * 300, [], [[]], [-1], [2**40, 2**40], [1.5], ["x"], {}, {"x": 1}, [{}],
    [None],
]  # fmt: skip
DELETED = object()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Package:
    """A package with firmware: int8 network, streamed, of a shape where order matters."""
    folder = tmp_path_factory.mktemp("tampered")
    nodes = [NODE("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), NODE("Relu", ["c"], ["y"])]
    path = saved(model_of(nodes, {"x": (1, 3, 6, 4)}, ["y"], {"w": weights(2, 3, 3, 3)}), folder)
    return tvm_ext.build(tvm_ext.load(path), "host", folder / "out", BuildOptions(io="stream", verify=()))


@pytest.fixture
def package(built: Package, tmp_path: Path) -> Package:
    shutil.copytree(built.folder, tmp_path / "p")
    return Package(folder=tmp_path / "p", report=copy.deepcopy(built.report))


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to every value of a report, itself included; of lists, only to the first item."""
    yield path
    if isinstance(value, dict | list):
        keys = list(value) if isinstance(value, dict) else range(len(value))[:1]
        for key in keys:
            yield from places(value[key], (*path, key))


def changed(report: dict[str, Any], path: tuple[Any, ...], value: Any) -> Any:
    result = copy.deepcopy(report)
    if not path:
        return {} if value is DELETED else value
    inner: Any = result
    for key in path[:-1]:
        inner = inner[key]
    if value is DELETED:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return result


def everything_but_a_run(folder: Path) -> None:
    console = Console(file=StringIO(), width=140)
    for table in report_tables(read_report(folder)):
        console.print(table)


def test_every_value_of_a_report_may_be_anything(package: Package) -> None:
    """Four hostile values in each place: the package opens and shows, or is BadPackage."""
    file, tried, refused = package.folder / "report.json", 0, 0
    for index, path in enumerate(places(package.report)):
        for value in (*(HOSTILE * 2)[3 * index % len(HOSTILE) :][:3], DELETED):
            file.write_text(json.dumps(changed(package.report, path, value)))
            for use in (everything_but_a_run, opened):
                tried += 1
                try:
                    use(package.folder)
                except BadPackage as error:
                    refused += 1
                    assert len(str(error)) < 2000
    assert tried > 500 and refused > tried // 4


def opened(folder: Path) -> None:
    loaded = Package.load(folder)
    assert loaded.inputs and loaded.outputs and loaded.interface
    with pytest.raises(TvmExtError):  # a host package has no firmware
        loaded.run_board([{}])


@pytest.mark.parametrize(
    "text",
    [
        b"", b"{", b"\xff\xfe\x00", b"null", b"[]", b"3", b'"x"', b"[" * 100_000, b'{"a":' * 100_000,
        b'{"schema_version": 1, "a": ' + b"[" * 200 + b"]" * 200 + b"}", b'{"schema_version": ' + b"1" * 5000 + b"}",
        b'{"schema_version": true}', b'{"schema_version": 1}', b"{}",
    ],
)  # fmt: skip
def test_a_report_that_is_none(package: Package, text: bytes) -> None:
    (package.folder / "report.json").write_bytes(text)
    for use in (everything_but_a_run, Package.load):
        with pytest.raises(BadPackage):
            use(package.folder)


@pytest.mark.parametrize("change", [lambda file: file.unlink(), lambda file: (file.unlink(), file.mkdir())])
def test_a_report_that_is_no_file(package: Package, change: Callable[[Path], Any]) -> None:
    change(package.folder / "report.json")
    with pytest.raises(BadPackage):
        Package.load(package.folder)


@pytest.mark.parametrize(
    "text",
    [
        b"", b"{", b"null", b"[]", b"3", b"\xff", b"[" * 100_000, b'{"a":' * 100_000, b"{}", b'{"name": 3}',
        b'{"name": "x", "memories": ' + b"9" * 5000 + b"}",
    ],
)  # fmt: skip
def test_a_platform_that_is_none(package: Package, text: bytes) -> None:
    (package.folder / "platform.json").write_bytes(text)
    with pytest.raises(BadPackage, match=r"platform\.json: cannot be read"):
        _ = Package.load(package.folder).platform


def test_a_platform_with_sections_that_are_run(package: Package) -> None:
    file = package.folder / "platform.json"
    platform = json.loads(file.read_text())
    platform["memories"][0]["section"] = ".init"
    file.write_text(json.dumps(platform))
    with pytest.raises(BadPackage, match=r"platform\.json.*section = '\.init'"):
        _ = package.platform


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("inputs", 0, "shape"), [1, 3, 4, 6], r"differs from report\.json, which has x: float32\[1, 3, 4, 6\]"),
        (("inputs", 0, "shape"), [1, 3, 6, 8], r"differs from report\.json, which has \w+_X_SIZE 144"),
        (("outputs", 0, "dtype"), "int32", r"y: int32\[1, 2, 6, 4\]"),
        (("outputs", 0, "scale"), 0.5, r"has only one of scale and zero_point"),
        (("outputs", 0, "stream", "rows"), 3, r"_Y_ROW_SIZE 16"),
        (("outputs", 0, "stream", "layout"), [0, 1, 2, 2], r"cannot be streamed as"),
        (("inputs", 0, "shape"), [2**30, 2**30], r"which is more than 2 GiB"),
        (("inputs", 0, "shape"), [1, 3, -6, 4], r"inputs\.0\.shape\.2 = '-6': "),
        (("inputs", 0, "dtype"), "object", r"is of type 'object'; the known types are float32, "),
        (("inputs",), [], r"differs from report\.json"),
        (("model", "name"), "../../x", r"model\.name = '\.\./\.\./x'"),
        (("model", "name"), "other", r"other\.h: cannot be read: No such file"),
        (("options", "io"), "shared", r"options\.io = 'shared'"),
    ],
)
def test_a_report_that_is_not_the_headers(package: Package, path: tuple[Any, ...], value: Any, says: str) -> None:
    (package.folder / "report.json").write_text(json.dumps(changed(package.report, path, value)))
    with pytest.raises(BadPackage, match=says):
        Package.load(package.folder)


@pytest.mark.parametrize(("old", "new"), [("_state_bytes 16u", "_state_bytes 12u"), ("_state_bytes 16u", "_kept 16u")])
def test_a_header_with_another_state(old: str, new: str, tmp_path: Path) -> None:
    module = tvm_ext.load(saved(counter(), tmp_path), states={"count": "count.next"})
    package = tvm_ext.build(module, "host", tmp_path / "package", BuildOptions(verify=()))
    (header,) = (path for path in package.folder.glob("*.h") if "_state_bytes" in path.read_text())
    assert old in header.read_text()
    header.write_text(header.read_text().replace(old, new))
    with pytest.raises(BadPackage, match=r"differs from report\.json, which has \w+_state_bytes = 16"):
        Package.load(package.folder)


@pytest.mark.parametrize(
    ("path", "value"),
    [(("inputs", 0, "shape"), [1, 3, 60, 4]), (("outputs", 0, "dtype"), "float64"), (("options", "io"), "arena")],
)
def test_nothing_runs_where_a_compiler_sees_another_header(package: Package, path: tuple[Any, ...], value: Any) -> None:
    """Also where the package was not opened from its folder."""
    lying = Package(folder=package.folder, report=changed(package.report, path, value))
    inputs = {name: np.zeros(spec.shape, spec.dtype) for name, spec in lying.inputs.items()}
    with pytest.raises(BadPackage, match=r"report\.json does not match \w+\.h"):
        lying.run(inputs)


@pytest.mark.parametrize("elf", ["../out.elf", "/bin/sh", "a/../../x", "p\0q", ".", "absent.elf", "", "link.elf"])
def test_firmware_outside_of_the_package(package: Package, elf: str) -> None:
    (package.folder / "link.elf").symlink_to("/bin/sh")
    package.report["artifacts"]["elf"] = elf
    with pytest.raises(BadPackage, match=r"is not a file of the package|cannot be read"):
        package.run_board([{}])


def test_firmware_of_another_model(package: Package) -> None:
    package.report["artifacts"]["elf"] = "x.elf"
    for data in (b"", b"\x7fELF" + b"other_run\0" * 9, package.interface.run.encode() + b"\0"):
        (package.folder / "x.elf").write_bytes(data)
        with pytest.raises(BadPackage, match="is not the firmware of"):
            package.run_board([{}])
