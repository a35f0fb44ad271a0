"""Weights of 4 bits, and activations of 16, beside 8: constants, instructions, signal to noise; of the digits accuracy.

    python benchmarks/fewer_bits.py
    python benchmarks/fewer_bits.py ResNet-8        the others' results are kept

DS-CNN and ResNet-8 lie in `../shared/models`; there is one input of each with its answer, so samples of calibration are
made from it: moved along its first axis, scaled, noise added. The digits have samples with labels, and others that are
held out. Instructions are counted in QEMU over one run; they are not cycles.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tvm_ext  # noqa: E402
from benchmarks.measure.commit import stamped, write_result  # noqa: E402
from tvm_ext import BuildOptions, Package  # noqa: E402
from tvm_ext.execution.host_model import HostModel  # noqa: E402

SHARED = Path(os.environ.get("TVM_EXT_SHARED", ROOT.parent / "shared"))
DIGITS = ROOT / "tutorials" / "digits"
RESULTS = ROOT / "benchmarks" / "results" / "fewer_bits.json"
PLATFORMS = ("cortex_m4", "cortex_m55")
NUM_SAMPLES = 48
Array = np.ndarray


@dataclass(frozen=True, kw_only=True)
class Network:
    """A float network. samples: of calibration, by input; with labels where there are any."""

    path: Path
    samples: Mapping[str, Array]


def networks() -> dict[str, Network]:
    """All networks by the names of tables."""
    models = {"DS-CNN": "kws_fp32", "ResNet-8": "resnet_fp32"}
    found = {title: made_samples(SHARED / "models" / f"{name}.onnx") for title, name in models.items()}
    with np.load(DIGITS / "digits_calibration.npz", allow_pickle=False) as arrays:
        return found | {"digits": Network(path=DIGITS / "digits.onnx", samples=dict(arrays))}


def made_samples(path: Path) -> Network:
    """A network with samples made from the only input there is."""
    name = tvm_ext.load(path)["main"].params[0].name
    with np.load(path.with_suffix(".npz"), allow_pickle=False) as arrays:
        one = arrays["in0"]
    random = np.random.default_rng(0)
    samples = [one]
    while len(samples) < NUM_SAMPLES:
        moved = np.roll(one, int(random.integers(0, one.shape[1])), axis=1) * random.uniform(0.5, 1.2)
        samples.append(moved + random.normal(size=one.shape) * one.std() * random.uniform(0.1, 0.8))
    return Network(path=path, samples={name: np.stack(samples).astype("float32")})


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("networks", nargs="*", help="beginnings of names; default: all")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    kept = json.loads(options.results.read_text(encoding="utf-8")) if options.results.exists() else {}
    for title, network in networks().items():
        if options.networks and not title.startswith(tuple(options.networks)):
            continue
        kept[title] = stamped({"processors": {platform: measured(network, platform) for platform in PLATFORMS}})
        print(title, kept[title], flush=True)
        write_result(options.results, kept)
    return 0


def measured(network: Network, platform: str) -> dict[str, Any]:
    """Figures by the bits of weights and activations; mixed activations are asked for half of what 16 bits gain."""
    with TemporaryDirectory(prefix="tvm_ext_") as folder:

        def built(weights: Any, activations: Any, least_db: float = -100.0) -> dict[str, Any]:
            options = BuildOptions(
                quantize="int8", weights=weights, activations=activations, min_snr_db=least_db, verify=("host", "qemu")
            )
            return _built(network, platform, options, Path(folder) / f"{weights}_{activations}")

        narrow, wide = built("int8", "int8"), built("int8", "int16")
        half = (narrow["snr_db"] + wide["snr_db"]) / 2
        return {
            "int8": narrow, "int4": built("int4", "int8"), "int8, mixed": built("int8", "mixed", half),
            "int8, int16": wide,
        }  # fmt: skip


def _built(network: Network, platform: str, options: BuildOptions, folder: Path) -> dict[str, Any]:
    package = tvm_ext.build(tvm_ext.load(network.path), platform, folder, options, calibration=network.samples)
    report = package.report
    assert report["verify"]["host"]["passed"] and report["verify"]["qemu"]["passed"], "it computes what it says"
    quantization = report["quantization"]
    return {
        "weights_bytes": report["weights_bytes"], "code_bytes": report["code_bytes"],
        "instructions": report["verify"]["qemu"]["instructions"], "macs": report["macs"],
        "snr_db": quantization["operators"][-1]["snr_db"], "accuracy_float": quantization["accuracy_float"],
        "accuracy": quantization["accuracy_int8"], "arena_bytes": report["arena_bytes"],
        "operators_int16": sum(operator["dtype"] == "int16" for operator in quantization["operators"]),
        "operators": len(quantization["operators"]),
        "held_out": held_out(package) if network.path.parent == DIGITS else None,
    }  # fmt: skip


def held_out(package: Package) -> float:
    """Part of the digits outside of calibration that a package names rightly."""
    with np.load(DIGITS / "digits_test.npz", allow_pickle=False) as arrays:
        images, labels = (arrays["images"] / 16).astype("float32").reshape(-1, 1, 1, 8, 8), arrays["labels"]
    spec = package.inputs["image"]
    limits = np.iinfo(spec.dtype)
    integers = np.clip(np.rint(images / spec.scale) + spec.zero_point, limits.min, limits.max).astype(spec.dtype)
    with HostModel(package.folder, package.interface) as model:
        guesses = [model.run({"image": image})["probabilities"].argmax() for image in integers]
    return float(np.mean(guesses == labels))


if __name__ == "__main__":
    raise SystemExit(main())
