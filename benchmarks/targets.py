"""Every target and six networks: equal bytes, instructions, cycles, RAM and flash, as docs/targets.md shows them.

    python benchmarks/targets.py
    python benchmarks/targets.py --platforms cortex_m4        the others' results are kept

The networks are those of `tests/support/six_networks.py`. TensorFlow Lite Micro verifies each on the host. On every
other platform the outputs of three random samples are compared with the host's, byte by byte. Instructions are executed
ones of one inference, as the machine of the platform counts them; cycles are estimated from them where the core has a
table of cycles; flash is constants and code; RAM is arenas without stack.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tvm_ext  # noqa: E402
from benchmarks.measure.commit import known, stamped, write_result  # noqa: E402
from tests.support.six_networks import SIX  # noqa: E402
from tvm_ext import BuildOptions, Package  # noqa: E402
from tvm_ext.core.errors import BadPlatform  # noqa: E402
from tvm_ext.profiling.core_table import core_table  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "targets.json"
HOST = "host"
PLATFORMS = (
    "cortex_m0plus", "cortex_m23", "cortex_m3", "cortex_m4", "cortex_m7", "cortex_m33", "cortex_m52", "cortex_m55",
    "cortex_m85", "riscv32", "riscv32_zve32x", "riscv32_zve32f", "xtensa_lx106", "hexagon_v66", "wasm",
    "raspberry_pi_4", "raspberry_pi_5", "riscv64_v", "banana_pi_f3", "coral_npu",
)  # fmt: skip
SAMPLES = 3


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--platforms", nargs="+", default=PLATFORMS)
    parser.add_argument("--networks", nargs="+", default=tuple(SIX), choices=tuple(SIX))
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    found: dict[str, dict[str, Any]] = known(options.results).get("networks", {})
    with ProcessPoolExecutor(options.jobs) as pool:
        tasks = {pool.submit(measured, one, options.platforms): one for one in options.networks}
        for task in as_completed(tasks):
            found[tasks[task]] = {**found.get(tasks[task], {}), **task.result()}
            write_result(options.results, {"networks": {name: found[name] for name in SIX if name in found}})
    return 0


def measured(network: str, platforms: Sequence[str]) -> dict[str, Any]:
    """Figures of a network on the host and on other platforms, by platform."""
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        model = Path(name) / "net.tflite"
        model.write_bytes(SIX[network]())
        host = built(model, HOST, ("host",))
        samples = [drawn(host, seed) for seed in range(SAMPLES)]
        expected = in_series(host, samples)
        found = {HOST: stamped(_figures(host, None, None))}
        for platform in platforms:
            package = built(model, platform, ())
            ran = package.run_board(samples)
            for index, outputs in enumerate(expected):
                assert_equal(ran.outputs[index], outputs, f"{network} on {platform}, sample {index}")
            found[platform] = stamped(_figures(package, ran.instructions, estimated_cycles(package, samples[0])))
            print(network, platform, found[platform], flush=True)
    return found


def drawn(package: Package, seed: int) -> dict[str, np.ndarray]:
    """Return inputs over the whole range of int8."""
    random = np.random.default_rng(seed)
    return {name: random.integers(-128, 128, one.shape).astype(one.dtype) for name, one in package.inputs.items()}


def in_series(package: Package, samples: Sequence[dict[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
    """Return the outputs on the host of samples that follow each other: states are kept, as on a board."""
    with package.session() as session:
        return [{name: array.copy() for name, array in session.run(sample).items()} for sample in samples]


def assert_equal(found: dict[str, np.ndarray], expected: dict[str, np.ndarray], what: str) -> None:
    """Raise AssertionError where a byte differs. what: names the run in the message."""
    for name, array in expected.items():
        if not np.array_equal(found[name], array):
            raise AssertionError(f"{what}: {name} has other bytes than on the host")


def built(model: Path, platform: str, verify: tuple[str, ...]) -> Package:
    """Return the package of a model file for a platform, beside the file."""
    folder = model.parent / platform
    return tvm_ext.build(tvm_ext.load(model), platform, folder, BuildOptions(name="net", verify=verify))


def estimated_cycles(package: Package, sample: dict[str, np.ndarray]) -> int | None:
    """Return the cycles of one run that a profile estimates; None if the core has no table of cycles."""
    try:
        core_table(package.platform)
    except BadPlatform:
        return None
    return round(package.profile(sample).cycles)


def _figures(package: Package, instructions: int | None, cycles: int | None) -> dict[str, Any]:
    report = package.report
    return {
        "macs": report["macs"], "instructions": instructions, "estimated_cycles": cycles,
        "flash_bytes": report["weights_bytes"] + report["code_bytes"],
        "ram_bytes": sum(memory["used_bytes"] for memory in report["memories"] if memory["kind"] == "ram"),
    }  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
