"""Packages on the host: their C in a process of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.boards.toy import Toy, write_toy
from tvm_ext.core.errors import BadInput, BadPackage, BuildFailed, ChildFailed, RunFailed
from tvm_ext.core.platform import Platform
from tvm_ext.core.processes.child import ChildLimits
from tvm_ext.execution.host_model import HostModel, run_host


@pytest.mark.parametrize("io", ["arena", "caller"])
def test_outputs_have_the_models_names_and_shapes(host: Platform, tmp_path: Path, io) -> None:
    toy = write_toy(tmp_path, host, io=io)
    before = sorted(tmp_path.rglob("*"))
    outputs = run_host(tmp_path, toy.interface, [toy.sample])[0]
    assert list(outputs) == ["out"]
    assert outputs["out"].shape == (8,) and outputs["out"].dtype == np.float32
    np.testing.assert_array_equal(outputs["out"], toy.expected["out"])
    assert sorted(tmp_path.rglob("*")) == before


def test_inputs_need_not_be_contiguous(host: Platform, tmp_path: Path) -> None:
    toy = write_toy(tmp_path, host)
    strided = {name: np.asfortranarray(value) for name, value in toy.sample.items()}
    np.testing.assert_array_equal(run_host(tmp_path, toy.interface, [strided])[0]["out"], toy.expected["out"])


def test_a_changed_package_loads_anew_and_earlier_outputs_stay(host: Platform, tmp_path: Path) -> None:
    toy = write_toy(tmp_path, host)
    with HostModel(tmp_path, toy.interface) as first:
        kept = first.run(toy.sample)["out"]
        write_toy(tmp_path, host, body="output[i] = 7.0f;")
        with HostModel(tmp_path, toy.interface) as second:
            assert second.run(toy.sample)["out"].tolist() == [7.0] * 8
            assert first.run(toy.sample)["out"].tolist() == toy.expected["out"].tolist()
    assert kept.tolist() == toy.expected["out"].tolist()


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, r"input 'in:0 \*/ \?\?/' is missing"),
        ({"other": np.zeros(1)}, "'other' is not an input of toy"),
        ({"in:0 */ ??/": np.zeros((4, 2), np.float32)}, r"is float32\[4, 2\]; toy reads float32\[2, 4\]"),
        ({"in:0 */ ??/": np.zeros((2, 4))}, r"is float64\[2, 4\]"),
    ],
)
def test_wrong_inputs(host: Platform, tmp_path: Path, inputs, message: str) -> None:
    toy = write_toy(tmp_path, host)
    with pytest.raises(BadInput, match=message):
        run_host(tmp_path, toy.interface, [inputs])


def test_a_status_other_than_zero(host: Platform, tmp_path: Path) -> None:
    toy = write_toy(tmp_path, host)
    source = tmp_path / "toy.c"
    source.write_text(source.read_text().replace("return 0;", "return -2;"))
    with pytest.raises(RunFailed, match="toy_run returned -2"):
        run_host(tmp_path, toy.interface, [toy.sample])


def test_folders_that_cannot_be_built_or_loaded(host: Platform, tmp_path: Path) -> None:
    toy = write_toy(tmp_path, host)
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadPackage, match="no C sources"):
        HostModel(tmp_path / "empty", toy.interface)
    source = tmp_path / "toy.c"
    source.write_text(source.read_text() + "int32_t absent(void);\nint32_t other(void) { return absent(); }\n")
    with pytest.raises(BadPackage, match="absent"):
        HostModel(tmp_path, toy.interface, flags=["-Wl,-z,now"])
    source.write_text("broken")
    with pytest.raises(BuildFailed, match=r"toy\.c:1"):
        HostModel(tmp_path, toy.interface)


LIMITS = ChildLimits(seconds=20, memory_bytes=2 << 30, file_bytes=1 << 16)
HEAD = "#include <stdio.h>\n#include <stdlib.h>\n"
MISBEHAVES = {
    "null": ("*(volatile int32_t *)0 = 1;", "was ended by signal SIGSEGV"),
    "division": ("volatile int32_t zero = 0; zero = 700 / zero;", "was ended by signal SIGFPE"),
    "abort": ('fputs("no more\\n", stderr); abort();', r"was ended by signal SIGABRT\.\n.*no more"),
    "exit": ("exit(0);", "left with exit status 0"),
    "memory": (
        "for (;;) { volatile char *const p = malloc(1u << 28); if (!p) { abort(); } p[0] = 1; }",
        "was ended by signal SIGABRT",
    ),
    "file": (
        'FILE *const f = fopen("big", "wb"); for (;;) { if (fputs("0123456789abcdef", f) < 0) { abort(); } }',
        r"was ended by signal SIG(XFSZ|ABRT)",
    ),
}


def misbehaving(folder: Path, host: Platform, body: str) -> Toy:
    toy = write_toy(folder, host, prologue=f"    {body}")
    source = folder / "toy.c"
    source.write_text(HEAD + source.read_text())
    return toy


@pytest.mark.parametrize("name", MISBEHAVES)
def test_what_crashes_is_an_error_of_ours(host: Platform, tmp_path: Path, name: str, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    body, says = MISBEHAVES[name]
    toy = misbehaving(tmp_path, host, body)
    with HostModel(tmp_path, toy.interface, limits=LIMITS, writes=[tmp_path]) as model:
        for _ in range(2):
            with pytest.raises(ChildFailed, match=rf"toy_run on the host: (?s:.)*{says}"):
                model.run(toy.sample)


def test_a_run_without_end_meets_the_limit(host: Platform, tmp_path: Path) -> None:
    toy = misbehaving(tmp_path, host, 'for (volatile int32_t go = 1; go;) { __asm__ volatile(""); }')
    model = HostModel(tmp_path, toy.interface, limits=ChildLimits(seconds=3))
    with model, pytest.raises(ChildFailed, match=r"toy_run on the host: .* did not end within 3 s"):
        model.run(toy.sample)


def test_a_library_that_crashes_when_it_is_loaded(host: Platform, tmp_path: Path) -> None:
    toy = write_toy(tmp_path, host)
    source = tmp_path / "toy.c"
    begins = "__attribute__((constructor)) static void begin(void) { abort(); }\n"
    source.write_text(HEAD + source.read_text() + begins)
    with pytest.raises(ChildFailed, match="load was ended by signal SIGABRT"):
        HostModel(tmp_path, toy.interface)


@pytest.mark.parametrize("io", ["arena", "caller"])
@pytest.mark.parametrize("side", ["inputs", "outputs"])
@pytest.mark.parametrize(
    "change", [{"shape": (9,)}, {"shape": (2**31, 2**31)}, {"shape": ()}, {"dtype": "int32"}, {"name": "other"}]
)
def test_an_interface_that_is_not_the_headers_reads_no_memory(
    host: Platform, tmp_path: Path, io, side: str, change
) -> None:
    if io == "caller" and "name" in change:
        change = {"dtype": "float64"}  # arguments have no names
    toy = write_toy(tmp_path, host, io=io)
    lying = replace(toy.interface, **{side: (replace(getattr(toy.interface, side)[0], **change),)})
    with pytest.raises(BadPackage, match=r"report\.json does not match toy\.h; compile the model again"):
        HostModel(tmp_path, lying)


def test_ports_that_the_header_does_not_have(host: Platform, tmp_path: Path) -> None:
    toy = write_toy(tmp_path, host)
    port = toy.interface.outputs[0]
    twice = replace(toy.interface, outputs=(port, replace(port, name="z")))
    for lying in (twice, replace(toy.interface, io="caller"), replace(toy.interface, io="stream")):
        with pytest.raises(BadPackage, match=r"does not match toy\.h"):
            HostModel(tmp_path, lying)
