"""Least arenas of the zoo's int8 networks: whole, split into rows that run in series, and in patches.

    python benchmarks/fit.py --output benchmarks/results/fit.json

Bytes are those of the arena on the Cortex-M4: input, output, scratch and rings included. Of rows alone nothing is
computed twice: `least_bytes` are the fewest there are, executed instructions, QEMU's, of the unsplit network and of the
cheapest split within the limit are measured where `--measure` names the network. Limits are what the project aims at.
`patches` are those of strips of columns, whose halos are computed twice, where they need fewer bytes than rows: the
fewest, and what packages within these and halfway to these execute, which are compared on the host and on the board.
`streamed` are the same with `--io stream`, where no more than a few rows of the input are held; the package within the
limit is run and compared on the host, and on the board in QEMU where its flash holds the weights. `patches` of these
are with `--reread`: rows of the input come again for each strip of columns, where that needs fewer bytes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import onnx
import tvm

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tvm_ext  # noqa: E402
from benchmarks import zoo  # noqa: E402
from benchmarks.measure.commit import stamped, write_result  # noqa: E402
from benchmarks.measure.whole_layers import NO_SHORTAGE  # noqa: E402
from tvm_ext.compilation.pipeline import compile_module  # noqa: E402
from tvm_ext.core.errors import DoesNotFit  # noqa: E402
from tvm_ext.core.platform import Platform  # noqa: E402

PLATFORM = "cortex_m4"
LIMITS = {
    "mobilenet_v2_100_224_int8": 290_000,
    "mobilenet_v2_035_144_int8": 93_000,
    "mcunet_320k_int8": 150_000,
    "ds_cnn_int8": 8_000,
    "resnet8_int8": 26_000,
    "mobilenet_v1_025_96_int8": 36_000,
    "mlp_64_4096_int8": 1_000,
    "ffn_16_128_512_int8": 4_000,
}
"""Bytes of arena with the input held, by network."""
STREAMED_LIMITS = {
    "mobilenet_v2_100_224_int8": 150_000,
    "mobilenet_v2_035_144_int8": 36_000,
    "mcunet_320k_int8": 96_000,
}
"""Bytes of arena with the input streamed."""
BY_ROWS = ("whole", "split", "split, least scratch", "stream", "stream, least scratch")
IN_PATCHES = ("patches", "patches, least scratch")
"""Methods of `tvm_ext.fitting.fit`."""
MEASURED = (
    "ds_cnn_int8", "resnet8_int8", "mobilenet_v1_025_96_int8", "mlp_64_4096_int8", "ffn_16_128_512_int8"
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", nargs="*", default=list(MEASURED))
    parser.add_argument("--networks", nargs="*", default=list(LIMITS), choices=list(LIMITS))
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args(arguments)
    results: dict[str, Any] = json.loads(options.output.read_text()) if options.output.exists() else {"networks": {}}
    with TemporaryDirectory(prefix="fit_") as name:
        for network in options.networks:
            path = Path(name) / f"{network}.onnx"
            onnx.save(zoo.build(network), path)
            found = fitted(path, Path(name) / network, LIMITS[network], network in options.measure)
            found |= patched(path, Path(name) / f"{network}_patched", found)
            found["streamed"] = streamed(path, Path(name) / f"{network}_streamed", network)
            results["networks"][network] = stamped(found)
            print(network, json.dumps(found), flush=True)
            write_result(options.output, results)
    return 0


def fitted(path: Path, folder: Path, limit: int, measure: bool) -> dict[str, Any]:
    """Arena of a network whole and split, and what splitting costs."""
    module, platform = tvm_ext.load(path), Platform.load(PLATFORM)
    whole = compile_module(module, platform, tvm_ext.BuildOptions(ram=NO_SHORTAGE)).plan.arena_bytes
    least = least_bytes(module, platform, "arena", BY_ROWS) or whole
    found: dict[str, Any] = {"limit_bytes": limit, "whole_bytes": whole, "least_bytes": least}
    if measure:
        options = [tvm_ext.BuildOptions(ram=ram, verify=("host", "qemu")) for ram in (whole, max(least, limit))]
        reports = [tvm_ext.build(module, platform, folder / str(i), o).report for i, o in enumerate(options)]
        found["instructions"] = {
            str(r["arena_bytes"]): r["verify"]["qemu"]["instructions"] for r in reports
        }  # arena bytes -> executed
        found["flash_bytes"] = {str(r["arena_bytes"]): r["weights_bytes"] + r["code_bytes"] for r in reports}
        found["stack_bytes"] = {str(r["arena_bytes"]): r["stack_bytes"] for r in reports}
    return found


def patched(path: Path, folder: Path, by_rows: dict[str, Any]) -> dict[str, Any]:
    """The same in patches, and what two packages measure; nothing where rows alone need no more."""
    module, platform = tvm_ext.load(path), Platform.load(PLATFORM)
    rows, least = by_rows["least_bytes"], least_bytes(module, platform, "arena", IN_PATCHES)
    if least is None or least >= rows:
        return {}
    instructions: dict[str, int] = {}
    for ram in (rows, (rows + least) // 2, least):
        options = tvm_ext.BuildOptions(ram=ram, verify=("host", "qemu"))
        report = tvm_ext.build(module, platform, folder / str(ram), options).report
        instructions[str(report["arena_bytes"])] = report["verify"]["qemu"]["instructions"]
    return {"patches": {"least_bytes": least, "instructions": instructions}}


def streamed(path: Path, folder: Path, network: str) -> dict[str, Any]:
    """Arenas of a network with its input streamed, and what a package within the limit, or the least one, measures."""
    module, platform = tvm_ext.load(path), Platform.load(PLATFORM)
    least = least_bytes(module, platform, "stream", BY_ROWS)
    limit = STREAMED_LIMITS.get(network)
    options = tvm_ext.BuildOptions(io="stream", ram=limit or least, verify=("host", "qemu"))
    report = tvm_ext.build(module, platform, folder, options).report
    return {
        **({"limit_bytes": limit} if limit else {}),
        "least_bytes": least,
        "verified_bytes": report["arena_bytes"],
        "verified_on": [where for where, found in report["verify"].items() if found and found["passed"]],
        "input_rows": {key: report["inputs"][0]["stream"][key] for key in ("rows", "rows_kept", "rows_per_call")},
        "instructions": report["verify"]["qemu"]["instructions"],
        **read_again(path, folder, least or 0),
    }


def read_again(path: Path, folder: Path, by_rows: int) -> dict[str, Any]:
    """The same in patches, whose strips ask for rows again; nothing where rows that come once need no more."""
    module, platform = tvm_ext.load(path), Platform.load(PLATFORM)
    least = least_bytes(module, platform, "stream", IN_PATCHES, reread=True)
    if least is None or least >= by_rows:
        return {}
    instructions: dict[str, int] = {}
    strips: dict[str, int] = {}
    for ram in ((by_rows + least) // 2, least):
        options = tvm_ext.BuildOptions(io="stream", reread=True, ram=ram, verify=("host", "qemu"))
        report = tvm_ext.build(module, platform, folder.with_name(f"{folder.name}_again_{ram}"), options).report
        instructions[str(report["arena_bytes"])] = report["verify"]["qemu"]["instructions"]
        strips[str(report["arena_bytes"])] = len(report["inputs"][0]["stream"]["strips"])
    return {"patches": {"least_bytes": least, "instructions": instructions, "strips": strips}}


def least_bytes(
    module: tvm.IRModule,
    platform: Platform,
    io: Literal["arena", "stream"],
    methods: Sequence[str],
    *,
    reread: bool = False,
) -> int | None:
    """The smallest arena that any of some methods reaches when one byte is asked for; None where none comes to any."""
    try:
        compile_module(module, platform, tvm_ext.BuildOptions(ram=1, io=io, reread=reread))
    except DoesNotFit as error:
        return min((num_bytes for method, num_bytes in error.least_bytes.items() if method in methods), default=None)
    raise AssertionError("nothing fits one byte")


if __name__ == "__main__":
    sys.exit(main())
