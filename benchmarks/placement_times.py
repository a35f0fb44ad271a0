"""Predicted time, by which tensors and operators are placed, against what `tvm-ext profile` estimates, by step.

    python benchmarks/placement_times.py
    python benchmarks/placement_times.py --networks ds_cnn_int8 --platforms cortex_m4
    python benchmarks/placement_times.py --key before          in a checkout of another commit, into the same results

Each network is compiled, run once on the platform's board in QEMU, and profiled; a step of several calls is their sum.
Copies between memories are left out: QEMU's boards have no DMA, and it counts what the processor copies in its place.
Kernels' times are fitted (`benchmarks/kernel_times.py`) to layers of these networks, each alone, but not of those of
HELD_OUT.
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
from benchmarks.measure.commit import stamped, write_result  # noqa: E402
from benchmarks.measure.records import reason_of  # noqa: E402
from tvm_ext import BuildOptions, Package  # noqa: E402
from tvm_ext.core.errors import TvmExtError  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "placement_times.json"
PLATFORMS = (
    "cortex_m0plus", "cortex_m4", "cortex_m7", "cortex_m33", "cortex_m55", "cortex_m7_psram", "always_on",
)  # fmt: skip
NETWORKS = (
    *(f"{name}_{dtype}" for name in ("ds_cnn", "resnet8", "mobilenet_v1_025_96", "autoencoder", "mcunet_5fps_vww")
      for dtype in ("int8", "fp32")),
    "mobilenet_v2_035_144_int8",
)  # fmt: skip
HELD_OUT = ("mcunet_5fps_vww_int8", "mcunet_5fps_vww_fp32", "mobilenet_v2_035_144_int8")
"""Networks that kernels' times are not fitted to."""
BOUNDS = (1.25, 2.0)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--networks", nargs="*", default=NETWORKS)
    parser.add_argument("--platforms", nargs="*", default=PLATFORMS)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--key", choices=("before", "after"), default="after")
    options = parser.parse_args(arguments)
    found: dict[str, dict[str, Any]] = {platform: {} for platform in options.platforms}
    steps: dict[str, dict[str, list[dict[str, Any]]]] = {platform: {} for platform in options.platforms}
    for network in options.networks:
        model = zoo.build(network)
        for platform in options.platforms:
            try:
                rows = list(steps_of(model, platform))
            except TvmExtError as error:
                found[platform][network] = {"skipped": reason_of(error)}
            else:
                found[platform][network], steps[platform][network] = summary(rows), rows
            print(network, platform, found[platform][network], flush=True)
    known = json.loads(options.results.read_text(encoding="utf-8")) if options.results.exists() else {}
    totals = {platform: groups(of_networks) for platform, of_networks in steps.items()}
    write_result(options.results, known | {options.key: stamped({"totals": totals, "networks": found})})
    return 0


def steps_of(model: onnx.ModelProto, platform: str) -> Iterator[dict[str, Any]]:
    """Each step that a kernel computes: predicted and estimated cycles. Raises TvmExtError."""
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        folder = Path(name)
        onnx.save(model, folder / "model.onnx")
        options = BuildOptions(verify=(), name="network")
        yield from rows_of(tvm_ext.build(tvm_ext.load(folder / "model.onnx"), platform, folder / "out", options))


def rows_of(package: Package) -> Iterator[dict[str, Any]]:
    """Steps of a package, run once."""
    layers = {layer.name: layer for layer in package.profile().layers}
    trace = json.loads((package.folder / "trace.json").read_text(encoding="utf-8"))
    calls = {entry["name"]: entry["steps"] for entry in trace["code"] if entry["is"] == "step"}
    for step in package.report["steps"]:
        own = [layers[call] for call in calls[step["name"]] if call in layers]
        if own and step["kernel"]:
            yield {
                "step": step["name"], "kernel": step["kernel"], "predicted": step["predicted_cycles"],
                "estimated": round(sum(layer.cycles for layer in own)),
                "waits": round(sum(memory.wait_cycles for layer in own for memory in layer.memories)),
            }  # fmt: skip


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Steps, the shares of them within the bounds, their rank correlation, the whole, and the step farthest off."""
    if not rows:
        return {"num_steps": 0}
    predicted, estimated = (np.array([row[key] for row in rows], np.float64) for key in ("predicted", "estimated"))
    ratios = predicted / estimated
    far = np.maximum(ratios, 1 / ratios)
    farthest = int(far.argmax())
    return {
        "num_steps": len(rows),
        **{f"within {bound:g}": round(float((far <= bound).mean()), 3) for bound in BOUNDS},
        "rank correlation": round(_spearman(predicted, estimated), 4) if len(rows) > 1 else None,
        "predicted": round(predicted.sum()), "estimated": round(estimated.sum()),
        "farthest": {"kernel": rows[farthest]["kernel"], "ratio": round(float(ratios[farthest]), 3)},
    }  # fmt: skip


def groups(steps: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Summaries of all steps, and of those of networks that were held out."""
    found: dict[str, Any] = {}
    for name, networks in (("all", list(steps)), ("held out", [one for one in steps if one in HELD_OUT])):
        rows = [row for network in networks for row in steps[network]]
        found[name] = {"num_networks": len(networks), **summary(rows)}
    return found


def _spearman(one: np.ndarray, other: np.ndarray) -> float:
    ranks = [_ranks(values) for values in (one, other)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    """Places in ascending order; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts + 1) / 2)[inverse]


if __name__ == "__main__":
    raise SystemExit(main())
