"""muRISCV-NN's kernels on RV32, plain and with vectors, as a peer: the same TFLite files and QEMU, one run each.

    git clone https://github.com/tum-ei-eda/muriscv-nn
    python benchmarks/muriscv_nn.py --source muriscv-nn --compiler clang-16 ../shared/models/kws_int8.tflite

The kernels are compiled by clang at -O3, as its toolchain file does; clang 14 lacks intrinsics that they call. Beside
each count stands how far outputs are from LiteRT's, in steps. Ours are those of boards.json.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.measure.commit import stamped, write_result  # noqa: E402
from benchmarks.measure.muriscv import model_c  # noqa: E402
from codegen_c.emit.firmware import emit_firmware  # noqa: E402
from codegen_c.emit.selftest import TestVector, emit_selftest, emit_vectors  # noqa: E402
from codegen_c.program.interface import Interface, Port  # noqa: E402
from tvm_ext.core.platform import Platform  # noqa: E402
from tvm_ext.core.toolchain import compile_objects, link_elf, section_sizes  # noqa: E402
from tvm_ext.execution.board import run_qemu  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "muriscv_nn.json"
PLATFORMS = {
    "riscv32": ("-march=rv32imac",),
    "riscv32_zve32x": ("-march=rv32imac_zve32x", "-DUSE_VEXT"),
}
"""Platform -> flags of the kernels."""
KERNELS = (
    "ConvolutionFunctions", "FullyConnectedFunctions", "NNSupportFunctions", "PoolingFunctions", "SoftmaxFunctions",
    "BasicMathFunctions",
)  # fmt: skip
FLAGS = (
    "--target=riscv32-unknown-elf", "-mabi=ilp32", "-O3", "-ffunction-sections", "-fdata-sections", "-w", "-isystem",
    "/usr/lib/picolibc/riscv64-unknown-elf/include",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--source", type=Path, required=True, help="a checkout of muRISCV-NN")
    parser.add_argument("--compiler", default="clang-16", help="clang (%(default)s)")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    found: dict[str, dict[str, Any]] = {}
    for platform, flags in PLATFORMS.items():
        with TemporaryDirectory(prefix="tvm_ext_") as name:
            clang = Clang(command=(options.compiler, *FLAGS, *flags), source=options.source.resolve())
            kernels = clang.compiled(_kernels(options.source), Path(name) / "kernels")
            for model in options.models:
                one = figures(model, Platform.load(platform), clang, kernels, Path(name) / model.stem)
                found.setdefault(model.stem, {})[platform] = one
                print(model.stem, platform, one, flush=True)
    write_result(options.results, stamped({"compiler": options.compiler, "models": found}))
    return 0


@dataclass(frozen=True, kw_only=True)
class Clang:
    """The compiler of muRISCV-NN's C. source: a checkout of it."""

    command: tuple[str, ...]
    source: Path

    def compiled(self, files: Sequence[Path], folder: Path) -> list[Path]:
        """Objects in a folder of their own."""
        folder.mkdir(parents=True)
        include = self.source / "Include"
        headers = [f"-I{place}" for place in (include, include / "Internal", include / "CMSIS" / "NN" / "Include")]
        objects = [folder / f"{file.stem}.o" for file in files]
        for file, target in zip(files, objects, strict=True):
            subprocess.run([*self.command, *headers, "-c", file, "-o", target], check=True)
        return objects


def figures(model: Path, platform: Platform, clang: Clang, kernels: list[Path], folder: Path) -> dict[str, int]:
    """Instructions of one inference, and bytes; largest difference from LiteRT's output in steps."""
    text, sample, expected = model_c(model, f"{model.stem}_run")
    ports = [
        Port(name=name, source=name, shape=array.shape, dtype="int8")
        for name, array in (("input", sample), ("output", expected))
    ]
    interface = Interface(model=model.stem, io="caller", inputs=(ports[0],), outputs=(ports[1],))
    sizes = "".join(f"#define {interface.size_macro(port)} {port.num_elements}\n" for port in ports)
    declared = f"int32_t {interface.run}(const int8_t *in, int8_t *out);\n"
    texts = {
        f"{model.stem}.c": text,
        f"{model.stem}.h": f"#pragma once\n#include <stdint.h>\n{sizes}{declared}",
        **emit_firmware(interface, platform),
        **emit_vectors(interface, [TestVector(inputs={"input": sample}, outputs={"output": expected})]),
        **emit_selftest(interface),
    }
    for file, content in texts.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(content, encoding="utf-8")
    own = clang.compiled([folder / f"{model.stem}.c"], folder / "objects")
    around = [*(folder / f"{model.stem}_{part}.c" for part in ("selftest", "vectors")), *(folder / "board").glob("*.c")]
    built = compile_objects(around, folder / "around", platform.toolchain, include_dirs=[folder])
    script = folder / "board" / "link.ld"
    elf = link_elf([*own, *kernels, *built], folder / f"{model.stem}.elf", platform.toolchain, script=script)
    result = run_qemu(elf, platform, interface, [{"input": sample}])
    assert result.instructions is not None, "one processor runs"
    difference = np.abs(result.outputs[0]["output"].astype(int) - expected)
    size = section_sizes(own, platform.toolchain)[f"{model.stem}.o"]
    return {
        "instructions": result.instructions, "steps_from_litert": int(difference.max()),
        "tensor_bytes": size.bss, "stack_bytes": result.stack_bytes,
    }  # fmt: skip


def _kernels(source: Path) -> list[Path]:
    """Kernels of int8, and what they call."""
    files = [file for kind in KERNELS for file in sorted((source / "Source" / kind).glob("*.c"))]
    return [file for file in files if "s16.c" not in file.name or "s8_s16" in file.name]


if __name__ == "__main__":
    raise SystemExit(main())
