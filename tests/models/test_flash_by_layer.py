"""Flash by layer: each byte of weights and code once, by the layers that need it, as the compiler made it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.models import integer_network
from tests.support.packages import Packages
from tvm_ext import BuildOptions, Platform
from tvm_ext.core.platform import HOST_TOOLCHAIN, Toolchain
from tvm_ext.core.toolchain import compile_objects, object_code, section_sizes, symbol_sizes
from tvm_ext.report.tables import report_tables

LAYERS = """\
#include "shared.h"
static const int table[64] = {1, 2, 3};
__attribute__((noinline)) static int only_first(int n) { return table[n & 63] * n; }
int first(int n);
int second(int n);
int unused(int n);
int first(int n) { return only_first(n) + helper(n); }
int second(int n) { return helper(n + 1) - 1; }
int unused(int n) { return n; }
"""
SHARED = '#include "shared.h"\nint helper(int n) { int s = 0; while (n > s * s) { s += n & 3; ++s; } return s; }\n'


ON_M4 = pytest.param("cortex_m4", marks=pytest.mark.board)
ON_RISCV = pytest.param("riscv32", marks=pytest.mark.riscv_board)
ON_WASM = pytest.param("wasm", marks=pytest.mark.wasm_board)


@pytest.mark.parametrize("platform", ["host", ON_M4, ON_RISCV, ON_WASM])
def test_functions_reach_what_they_call_and_read(platform: str, tmp_path: Path) -> None:
    toolchain: Toolchain = HOST_TOOLCHAIN if platform == "host" else Platform.load(platform).toolchain
    for name, text in {"layers.c": LAYERS, "shared.c": SHARED, "shared.h": "int helper(int n);\n"}.items():
        (tmp_path / name).write_text(text)
    objects = compile_objects([tmp_path / "layers.c", tmp_path / "shared.c"], tmp_path / "o", toolchain)
    code = object_code(objects, toolchain)
    assert {section for _, section in code.reached("first")} >= {
        ".text.first", ".text.only_first", ".text.helper", ".rodata.table"
    }  # fmt: skip
    reached = {section for _, section in code.reached("second")}
    assert {".text.second", ".text.helper"} <= reached and not reached & {".text.only_first", ".rodata.table"}
    assert code.reached("nothing") == frozenset()
    sizes = section_sizes(objects, toolchain)
    assert sum(code.num_bytes.values()) == sum(s.text + s.rodata + s.data for s in sizes.values())
    assert code.num_bytes["layers.o", ".rodata.table"] == 256


@pytest.mark.parametrize("platform", ["host", ON_M4, ON_WASM])
def test_each_byte_is_counted_once(platform: str, packages: Packages) -> None:
    package = packages.small("layers", integer_network, platform, BuildOptions(verify=()))
    report = package.report
    flash = report["flash"]
    assert (flash["code_bytes"], flash["weights_bytes"]) == (report["code_bytes"], report["weights_bytes"])
    assert flash["total_bytes"] == report["code_bytes"] + report["weights_bytes"]
    parts = [
        *(layer["weights_bytes"] + layer["code_bytes"] for layer in flash["layers"]),
        *(one["num_bytes"] for one in (*flash["shared_code"], *flash["shared_weights"])),
        flash["other_code_bytes"], flash["other_weights_bytes"],
    ]  # fmt: skip
    assert min(parts) >= 0 and sum(parts) == flash["total_bytes"]
    assert all(len(one["layers"]) > 1 for one in flash["shared_code"])
    steps = [step["name"] for step in report["steps"] if step["kernel"] != "copy"]
    assert [layer["layer"] for layer in flash["layers"]] == steps
    run = symbol_sizes([package.folder / report["artifacts"]["library"]], package.platform.toolchain)
    assert 0 < flash["other_code_bytes"] - run[package.interface.run] < 400, (
        "places of inputs and outputs, beside the run"
    )
    assert any(layer["code_bytes"] > 0 and layer["weights_bytes"] > 0 for layer in flash["layers"])
    titles = [str(getattr(table, "title", "")) for table in report_tables(report)]
    assert any("Flash by layer" in title for title in titles) and any("without code" in title for title in titles)
