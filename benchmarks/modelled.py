"""Instructions modelled against executed, of every step of the zoo's networks where it stands in its network.

    python benchmarks/modelled.py
    python benchmarks/modelled.py --networks ds_cnn_int8 --splits --platforms cortex_m4     other results are kept
    python benchmarks/modelled.py --networks --splits --platforms cortex_m4 --files ad01_int8.tflite har.tflite

Each network is compiled, run once on the platform's board in QEMU, and counted by layer (`tvm-ext profile`); a step of
several calls is their sum. Networks within a budget have steps that are cut into rows: a search decides by their price,
which is to be within 1.15 of what runs. Each file is compiled without a budget, and within 7 tenths of the arena that
it then needs. Instructions are not cycles.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tvm_ext  # noqa: E402
from benchmarks import zoo  # noqa: E402
from benchmarks.measure.commit import known, stamped, write_result  # noqa: E402
from benchmarks.measure.records import reason_of  # noqa: E402
from tests.support.transformer_models import encoder_block  # noqa: E402
from tvm_ext import BuildOptions, Package  # noqa: E402
from tvm_ext.core.errors import TvmExtError  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "modelled.json"
PLATFORMS = ("cortex_m4", "cortex_m55")
NETWORKS = (
    *(f"{name}_{dtype}" for name in ("autoencoder", "ds_cnn", "mobilenet_v1_025_96", "resnet8", "mcunet_5fps_vww",
      "mcunet_320k", "mobilenet_v2_035_144") for dtype in ("fp32", "int8")),
    "gated_unet_16_int8", "gated_dense_block_8_int8", "ffn_16_128_512_fp32",
    "words_1d_int8", "factored_int8", "wide_windows_int8",
)  # fmt: skip
SPLITS = {
    "resnet8_int8": (24_000,), "ds_cnn_int8": (10_000,), "mobilenet_v2_035_96_int8": (70_000,),
    "resnet8_fp32": (90_000,), "attention_256_64_4_fp32": (400_000,),
}  # fmt: skip
"""Networks and budgets in bytes that cut them into rows; a result is called `NAME within BYTES`."""
BOUNDS = (1.15, 1.25, 2.0)
SPLIT_SHARE = 0.7
"""Budget of a file that is split, as a share of its arena without a budget."""
_WORST = 5


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--networks", nargs="*", default=NETWORKS)
    parser.add_argument("--platforms", nargs="*", default=PLATFORMS)
    parser.add_argument("--splits", nargs="*", default=tuple(SPLITS), help="networks within their budgets, too")
    parser.add_argument("--files", nargs="*", type=Path, default=(), help="model files, split and not")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    before = known(options.results)
    found: dict[str, dict[str, Any]] = before.get("networks", {})
    files: dict[str, dict[str, Any]] = before.get("files", {})

    def write() -> None:
        parts = {"totals": stamped(_totals(found)), "networks": found, "files": files}
        write_result(options.results, {name: part for name, part in parts.items() if part})

    split = [(network, ram) for network in options.splits for ram in SPLITS[network]]
    for network, ram in [*((network, None) for network in options.networks), *split]:
        model = encoder_block(256, 64, 4) if network == "attention_256_64_4_fp32" else zoo.build(network)
        name = network if ram is None else f"{network} within {ram}"
        for platform in options.platforms:
            try:
                rows = list(measured(model, platform, ram))
                one: dict[str, Any] = {**summary(rows), "steps": rows}
            except TvmExtError as error:
                one = {"skipped": reason_of(error)}
            found[platform] = _in_order({**found.get(platform, {}), name: stamped(one)})
            print(name, platform, {k: v for k, v in one.items() if k != "steps"}, flush=True)
            write()
    for platform, path in ((platform, path) for platform in options.platforms for path in options.files):
        for name, one in _of_file(path, platform):
            files[platform] = {**files.get(platform, {}), name: stamped(one)}
            print(name, platform, {k: v for k, v in one.items() if k != "steps"}, flush=True)
            write()
    return 0


def _of_file(path: Path, platform: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the results of a file by name: without a budget, and within a share of the arena that it then needs."""
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        mod, ram = tvm_ext.load(path), None
        for title in (path.stem, f"{path.stem} split"):
            try:
                package = tvm_ext.build(mod, platform, Path(name) / "out", BuildOptions(verify=(), ram=ram))
            except TvmExtError as error:
                yield title, {"skipped": reason_of(error)}
                return
            rows = list(rows_of(package))
            arena = sum(memory["used_bytes"] for memory in package.report["memories"] if memory["kind"] == "ram")
            yield title, {**summary(rows), "arena_bytes": arena, "steps": rows}
            ram = int(arena * SPLIT_SHARE)


def _in_order(networks: Mapping[str, Any]) -> dict[str, Any]:
    order = [*NETWORKS, *networks]
    return dict(sorted(networks.items(), key=lambda item: order.index(item[0])))


def _totals(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """All steps of each platform."""
    steps = {
        platform: [row for one in some.values() for row in one.get("steps", ())] for platform, some in found.items()
    }
    return {name: {**summary(rows), "calibration": calibration(rows)} for name, rows in steps.items() if rows}


def measured(model: onnx.ModelProto, platform: str, ram: int | None = None) -> Iterator[dict[str, Any]]:
    """Each step that kernels compute: instructions, modelled and executed. Raises TvmExtError."""
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        folder = Path(name)
        onnx.save(model, folder / "model.onnx")
        options = BuildOptions(verify=(), name="network", ram=ram)
        package = tvm_ext.build(tvm_ext.load(folder / "model.onnx"), platform, folder / "out", options)
        yield from rows_of(package)


def rows_of(package: Package) -> Iterator[dict[str, Any]]:
    """Steps of a package, run once."""
    executed = {layer.name: layer.num_instructions for layer in package.profile().layers}
    trace = json.loads((package.folder / "trace.json").read_text())
    calls = {entry["name"]: entry["steps"] for entry in trace["code"] if entry["is"] == "step"}
    for step in package.report["steps"]:
        own = [executed[call] for call in calls[step["name"]] if call in executed]
        if own and step["modelled_instructions"]:
            row = {"modelled": step["modelled_instructions"], "executed": sum(own)}
            yield {"step": step["name"], "kernel": step["kernel"], **row}


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Steps, the shares of them within the bounds, the whole, and the steps that are farthest off."""
    ratios = np.array([row["modelled"] / row["executed"] for row in rows])
    far = np.maximum(ratios, 1 / ratios)
    worst = sorted(zip(far, ratios, rows, strict=True), key=lambda one: -one[0])[:_WORST]
    return {
        "num_steps": len(rows),
        **{f"within {bound:g}": round(float((far <= bound).mean()), 3) for bound in BOUNDS},
        "modelled": sum(row["modelled"] for row in rows), "executed": sum(row["executed"] for row in rows),
        "worst": [{"kernel": row["kernel"], "step": row["step"], "ratio": round(float(r), 3)} for _, r, row in worst],
    }  # fmt: skip


def calibration(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Medians of executed by modelled instructions of each kernel, as `InstructionSet.calibration` has them."""
    ratios: dict[str, list[float]] = {}
    for row in rows:
        ratios.setdefault(row["kernel"], []).append(row["executed"] / row["modelled"])
    return {kernel: round(float(np.median(found)), 2) for kernel, found in sorted(ratios.items())}


if __name__ == "__main__":
    raise SystemExit(main())
