"""Instructions, flash, arena, output bytes and lines of C of eight networks on two boards: before a change, and after.

    python benchmarks/figures.py --output before.json
    python benchmarks/figures.py --against before.json

Instructions are counted in QEMU over one random sample after a warm-up; they are not cycles. With `--against`, the exit
status is 1 where instructions grew by more than 1 %, flash by more than 2 %, or the arena or an output changed at all.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tvm_ext  # noqa: E402
from benchmarks import zoo  # noqa: E402
from tvm_ext import BuildOptions  # noqa: E402
from tvm_ext.core.errors import DoesNotFit  # noqa: E402
from tvm_ext.execution.board import run_qemu  # noqa: E402
from tvm_ext.verification.input_ranges import random_inputs  # noqa: E402

NETWORKS = ("ds_cnn", "resnet8", "mcunet_5fps_vww", "mobilenet_v2_035_144")
PLATFORMS = ("cortex_m4", "cortex_m55")
MOST_INSTRUCTIONS, MOST_FLASH = 1.01, 1.02


@dataclass(frozen=True, kw_only=True)
class Figures:
    """One network on one board; lines: of `<model>.c`, and its longest."""

    instructions: int
    flash_bytes: int
    arena_bytes: int
    stack_bytes: int
    output_sha256: str
    lines: int
    longest_line: int


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("networks", nargs="*", default=[f"{n}_{dtype}" for n in NETWORKS for dtype in ("fp32", "int8")])
    parser.add_argument("--platforms", nargs="+", default=PLATFORMS)
    parser.add_argument("--output", type=Path, help="write the figures to this file")
    parser.add_argument("--against", type=Path, help="compare with the figures in this file")
    options = parser.parse_args(arguments)
    before = json.loads(options.against.read_text()) if options.against else {}
    found: dict[str, dict[str, int | str]] = {}
    grown: list[str] = []
    for network in options.networks:
        for platform in options.platforms:
            name = f"{network} {platform}"
            try:
                found[name] = asdict(measured(network, platform))
            except DoesNotFit as error:
                print(f"{name:36}{str(error).splitlines()[0]}")
                continue
            problems = worse(found[name], before[name]) if name in before else []
            grown += [f"{name}: {problem}" for problem in problems]
            print(_line(name, found[name], before.get(name)), *problems, flush=True)
            if options.output:
                options.output.write_text(json.dumps(found, indent=1) + "\n")
    print(*grown, sep="\n")
    return 1 if grown else 0


def measured(network: str, platform: str) -> Figures:
    """A network of the zoo, built for a shipped board and run there once."""
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        path, out = Path(name) / "net.onnx", Path(name) / "package"
        onnx.save(zoo.build(network), path)
        package = tvm_ext.build(tvm_ext.load(path), platform, out, BuildOptions(verify=(), name="net"))
        sample = random_inputs({s: (port.shape, port.dtype) for s, port in package.inputs.items()}, 0)
        run = run_qemu(out / "net.elf", package.platform, package.interface, [sample], time_limit_s=600)
        text = (out / "net.c").read_text().splitlines()
        outputs = b"".join(array.tobytes() for array in run.outputs[0].values())
        return Figures(
            instructions=run.instructions, flash_bytes=package.report["code_bytes"] + package.report["weights_bytes"],
            arena_bytes=package.report["arena_bytes"], stack_bytes=run.stack_bytes,
            output_sha256=hashlib.sha256(outputs).hexdigest(), lines=len(text), longest_line=max(map(len, text)),
        )  # fmt: skip


def worse(now: dict[str, int | str], before: dict[str, int | str]) -> list[str]:
    """Sentences about what grew beyond its limit, or changed that must not."""
    problems = [
        f"{key} {before[key]} -> {now[key]}"
        for key, most in (("instructions", MOST_INSTRUCTIONS), ("flash_bytes", MOST_FLASH))
        if float(now[key]) > most * float(before[key])
    ]
    changed = [key for key in ("arena_bytes", "output_sha256") if now[key] != before[key]]
    return [*problems, *(f"{key} {before[key]} -> {now[key]}" for key in changed)]


def _line(name: str, now: dict[str, int | str], before: dict[str, int | str] | None) -> str:
    shown = [
        f"{now[key]:>11,}" + (f" ({float(now[key]) / max(float(before[key]), 1):.4f})" if before else "")
        for key in ("instructions", "flash_bytes", "arena_bytes", "stack_bytes", "lines", "longest_line")
    ]
    return f"{name:36}" + " ".join(shown)


if __name__ == "__main__":
    sys.exit(main())
