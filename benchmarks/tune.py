"""Gain of `--tune` on networks of the zoo: each compiled with and without, and counted on the board in QEMU.

    python benchmarks/tune.py
    python benchmarks/tune.py --networks ds_cnn_int8 --platforms cortex_m4        the others' results are kept

Whole runs, by `tvm-ext profile`: executed instructions, exact, and cycles, estimated. Both packages are given the same
inputs; outputs that differ in a bit are an error. Figures of kernels come from a cache of the run's own, so all are
measured. The code memory of the Cortex-M55's board is too small for the constants of MobileNetV2 and MCUNet: there they
lie in its DDR, at the rate of the code memory.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tvm_ext  # noqa: E402
from benchmarks import zoo  # noqa: E402
from benchmarks.measure.commit import known, stamped, write_result  # noqa: E402
from benchmarks.measure.records import reason_of  # noqa: E402
from tvm_ext import BuildOptions, Package, Platform  # noqa: E402
from tvm_ext.core.errors import TvmExtError  # noqa: E402
from tvm_ext.core.files.kept_files import FOLDER  # noqa: E402
from tvm_ext.profiling.profile_package import noise  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "tune.json"
PLATFORMS = ("cortex_m4", "cortex_m55")
NETWORKS = (
    "ds_cnn_int8", "resnet8_int8", "mobilenet_v1_025_96_int8", "mobilenet_v2_035_144_int8", "mcunet_5fps_vww_int8",
    "ds_cnn_fp32",
)  # fmt: skip
LARGE = ("mobilenet_v2", "mcunet")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="*", default=NETWORKS)
    parser.add_argument("--platforms", nargs="*", default=PLATFORMS)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    found: dict[str, dict[str, Any]] = known(options.results).get("networks", {})
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        os.environ[FOLDER] = str(Path(name) / "cache")
        for network in options.networks:
            path = Path(name) / f"{network}.onnx"
            onnx.save(zoo.build(network), path)
            for platform in options.platforms:
                board = platform_of(platform, network)
                try:
                    row = gained(path, board, Path(name) / f"{network}_{platform}")
                except TvmExtError as error:
                    row = {"skipped": reason_of(error)}
                found.setdefault(platform, {})[network] = stamped(row)
                print(network, platform, {key: value for key, value in row.items() if key != "changed"}, flush=True)
                write_result(options.results, {"networks": found})
    return 0


def platform_of(name: str, network: str) -> Platform:
    """A shipped platform, its constants in DDR where they do not fit the code memory."""
    found = Platform.load(name)
    if name != "cortex_m55" or not network.startswith(LARGE):
        return found
    code = found.memory("code")
    ddr = replace(code, name="ddr", capacity_bytes=1 << 24, address=0x6000_0000, section=".rodata.ddr")
    link = next(link for link in found.links if link.target == code.name)
    links = (*found.links, replace(link, target=ddr.name))
    return replace(found, memories=(*found.memories, ddr), links=links, weights=ddr.name)


def gained(model: Path, platform: Platform, folder: Path) -> dict[str, Any]:
    """Figures of a network on a platform, without tuning and with it. Raises TvmExtError."""
    plain, tuned = (built(model, platform, folder / str(tune), tune=tune) for tune in (False, True))
    sample = noise(plain.interface)
    one, other = (package.run(sample, on="qemu") for package in (plain, tuned))
    if any(one[name].tobytes() != other[name].tobytes() for name in one):
        raise AssertionError(f"{model.stem} on {platform.name}: tuning changed an output")
    tuning = tuned.report["tuning"]
    ways = [way for layer in tuning["layers"] for way in layer["candidates"] if way["not_measured"] is None]
    changed = [layer for layer in tuning["layers"] if layer["chosen"] != layer["modelled"]]
    return {
        "layers": len(tuning["layers"]), "ways": len(ways), "changed_layers": len(changed), "metric": tuning["metric"],
        "weights_in": plain.platform.weights,
        **{name: figures(package) for name, package in (("plain", plain), ("tuned", tuned))},
        "notice": tuning["notice"],
        "changed": [{key: layer[key] for key in ("steps", "modelled", "chosen")} for layer in changed],
    }  # fmt: skip


def built(model: Path, platform: Platform, folder: Path, *, tune: bool) -> Package:
    return tvm_ext.build(tvm_ext.load(model), platform, folder, BuildOptions(verify=(), name="network", tune=tune))


def figures(package: Package) -> dict[str, int]:
    """Sums of a whole run, and bytes."""
    profile = package.profile()
    return {
        "instructions": profile.num_instructions, "estimated_cycles": round(profile.cycles),
        **{key: package.report[key] for key in ("arena_bytes", "weights_bytes", "code_bytes")},
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
