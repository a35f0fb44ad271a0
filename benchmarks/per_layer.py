"""Executed instructions of every step of a model, each alone in a firmware on the platform's QEMU board.

    python benchmarks/per_layer.py model.onnx cortex_m4
    python benchmarks/per_layer.py model.onnx cortex_m4 --optimize size

Instructions are not cycles. Inputs are random; a step's time must not depend on them much.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.measure.steps import alone  # noqa: E402
from codegen_c.backend.build import Compiled  # noqa: E402
from codegen_c.emit.firmware import emit_firmware  # noqa: E402
from codegen_c.emit.selftest import TestVector, emit_selftest, emit_vectors  # noqa: E402
from codegen_c.program.steps import KernelCall  # noqa: E402
from tvm_ext.compilation.pipeline import compile_module  # noqa: E402
from tvm_ext.core.options import BuildOptions  # noqa: E402
from tvm_ext.core.platform import Platform  # noqa: E402
from tvm_ext.core.toolchain import compile_objects, link_elf  # noqa: E402
from tvm_ext.execution.board import run_qemu  # noqa: E402
from tvm_ext.execution.samples import RunResult  # noqa: E402
from tvm_ext.frontends.load import load  # noqa: E402
from tvm_ext.verification.input_ranges import random_inputs  # noqa: E402


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One step, measured; stack_bytes is the high-water mark below the caller of run()."""

    name: str
    kernel: str
    macs: int
    modelled: int
    instructions: int
    stack_bytes: int


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("model")
    parser.add_argument("platform")
    parser.add_argument("--optimize", choices=["balanced", "speed", "size"], default="balanced")
    options = parser.parse_args(arguments)
    platform = Platform.load(options.platform)
    chosen = BuildOptions(optimize=options.optimize)
    compiled, compile_for = compile_module(load(options.model), platform, chosen), chosen.compile_for
    layers = [measure(compiled, call, compile_for) for call in compiled.program.kernel_calls()]
    for layer in layers:
        per_mac = f"{layer.instructions / layer.macs:6.3f}" if layer.macs else " " * 6
        print(
            f"{layer.name:30} {layer.kernel:18} {layer.macs:9} MACs {layer.instructions:9} instructions {per_mac} a MAC"
            f" {layer.modelled / layer.instructions:6.2f} modelled {layer.stack_bytes:5} B stack"
        )
    total, macs = sum(layer.instructions for layer in layers), sum(layer.macs for layer in layers)
    print(f"{'all':30} {'':18} {macs:9} MACs {total:9} instructions {total / max(macs, 1):6.3f} a MAC")
    return 0


def measure(compiled: Compiled, call: KernelCall, optimize: str) -> Layer:
    """One kernel, all its rows, in a firmware of its own."""
    result = run_alone(compiled, call, optimize)
    return Layer(
        name=call.name, kernel=call.implementation.kernel, macs=call.implementation.macs,
        modelled=call.implementation.instructions, instructions=result.instructions, stack_bytes=result.stack_bytes,
    )  # fmt: skip


def run_alone(whole: Compiled, call: KernelCall, optimize: str) -> RunResult:
    """One random sample through one kernel call."""
    compiled = alone(whole, call)
    interface, platform, sources = compiled.interface, compiled.platform, compiled.sources()
    sample = random_inputs({port.source: (port.shape, port.dtype) for port in interface.inputs}, 0)
    zeros = {port.source: np.zeros(port.shape, port.dtype) for port in interface.outputs}
    vector = TestVector(inputs=sample, outputs=zeros)  # the self-test is not run
    texts = {
        **sources, **emit_vectors(interface, [vector]), **emit_selftest(interface), **emit_firmware(interface, platform)
    }  # fmt: skip
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        folder = Path(name)
        for file, text in texts.items():
            (folder / file).parent.mkdir(exist_ok=True)
            (folder / file).write_text(text, encoding="utf-8")
        files = [p for p in sorted(folder.rglob("*.c")) if not p.name.endswith("_main.c")]
        objects = compile_objects(files, folder / "build", platform.toolchain, optimize=optimize, include_dirs=[folder])
        script = folder / "board" / "link.ld"
        elf = link_elf(objects, folder / "layer.elf", platform.toolchain, script=script)
        return run_qemu(elf, platform, interface, [sample])


if __name__ == "__main__":
    sys.exit(main())
