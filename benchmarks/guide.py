"""The learned guide on networks it has never seen: instructions of steps against measurements, and plans with it.

    python benchmarks/guide.py --output benchmarks/results/guide.json

costs: for each processor and type, over the steps of the held-out networks together and of each: Spearman's rank
correlation with executed instructions, and the mean of |log2(predicted / executed)|, of the kernels' own estimates
and of the guide. A run goes on where the last one ended; what was measured is kept in the file.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import zoo  # noqa: E402
from benchmarks.guide_corpus import PLATFORMS, features_of, measured  # noqa: E402
from tvm_ext.core.platform import Platform  # noqa: E402
from tvm_ext.guide import learned_cost  # noqa: E402

NETWORKS = ("ds_cnn", "resnet8", "autoencoder", "mobilenet_v1_025_96", "mcunet_5fps_vww")
"""Those of MLPerf Tiny, which kws and resnet are trained forms of, and one that was searched."""
DTYPES = ("int8", "fp32")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--networks", nargs="*", default=NETWORKS)
    options = parser.parse_args(arguments)
    found: dict[str, Any] = json.loads(options.output.read_text()) if options.output.exists() else {"measured": {}}
    for network in options.networks:
        for dtype in DTYPES:
            for platform in PLATFORMS:
                key = f"{platform} {dtype} {network}"
                if key not in found["measured"]:
                    found["measured"][key] = _steps(zoo.build(f"{network}_{dtype}"), platform)
                    _write(options.output, found)
                    print(key, len(found["measured"][key]), flush=True)
    found["costs"] = costs(found["measured"])
    _write(options.output, found)
    for key, figures in found["costs"].items():
        print(f"{key:40} {json.dumps(figures)}")
    return 0


def _steps(model: onnx.ModelProto, platform: str) -> list[list[Any]]:
    """[kernel, executed instructions, numbers of the guide ...] of each different step."""
    steps = measured(model, Platform.load(platform))
    return [[call.implementation.kernel, count, *features_of(compiled, call)] for compiled, call, count in steps]


def costs(steps_of: Mapping[str, Sequence[Sequence[Any]]]) -> dict[str, dict[str, float]]:
    """Figures of the kernels' estimates and of the guide, by processor and type, and by network."""
    guide = learned_cost()
    groups: dict[str, list[tuple[str, Sequence[Any]]]] = {}
    for key, steps in steps_of.items():
        platform, dtype, network = key.split()
        simd = Platform.load(platform).processor.simd
        for group in (f"{platform} {dtype}", f"{platform} {dtype} {network}"):
            groups.setdefault(group, []).extend((simd, step) for step in steps)
    found: dict[str, dict[str, float]] = {}
    for group in sorted(groups, key=lambda name: (len(name.split()), name)):
        executed = np.array([step[1] for _, step in groups[group]], float)
        modelled = np.array([step[2] for _, step in groups[group]], float)
        learned = guide.corrected([(simd, step[0], tuple(step[2:])) for simd, step in groups[group]])
        found[group] = {"steps": len(executed)}
        for name, predicted in (("modelled", modelled), ("learned", learned)):
            found[group][f"{name}_spearman"] = round(spearman(predicted, executed), 4)
            found[group][f"{name}_error_bits"] = round(float(np.abs(np.log2(predicted / executed)).mean()), 4)
    return found


def spearman(one: np.ndarray, other: np.ndarray) -> float:
    """Correlation of ranks; equal values have the mean of their ranks."""
    return float(np.corrcoef(_ranks(one), _ranks(other))[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[place]


def _write(path: Path, found: Mapping[str, Any]) -> None:
    """One step a line."""
    measured_steps = ",\n".join(f"{json.dumps(key)}: [\n{_lines(steps)}]" for key, steps in found["measured"].items())
    rest = {key: value for key, value in found.items() if key != "measured"}
    head = "".join(f"{json.dumps(key)}: {json.dumps(value, indent=1)},\n" for key, value in rest.items())
    path.write_text(f'{{{head}"measured": {{\n{measured_steps}}}}}\n', encoding="utf-8")


def _lines(steps: Sequence[Sequence[Any]]) -> str:
    return ",\n".join(json.dumps(step, separators=(",", ":")) for step in steps)


if __name__ == "__main__":
    sys.exit(main())
