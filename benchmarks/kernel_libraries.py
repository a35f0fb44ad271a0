"""Libraries of kernels on our boards, as peers: the same TFLite files, the same QEMU, one run each.

    git clone https://github.com/ARM-software/CMSIS-NN
    git clone https://github.com/tum-ei-eda/muriscv-nn
    python benchmarks/kernel_libraries.py --cmsis-nn CMSIS-NN --muriscv-nn muriscv-nn ../shared/models/kws_int8.tflite

Their kernels are called layer by layer, without an interpreter, and compiled at -O3: CMSIS-NN by the compiler of our
boards with their flags, muRISCV-NN by clang 16, as its toolchain file does (clang 14 lacks intrinsics that it calls).
Beside each count stands how far outputs are from LiteRT's, in steps. Ours are those of boards.json.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.measure.commit import stamped, write_result  # noqa: E402
from benchmarks.measure.kernel_calls import CMSIS_NN, MURISCV_NN, Library, model_c  # noqa: E402
from codegen_c.emit.firmware import emit_firmware  # noqa: E402
from codegen_c.emit.selftest import TestVector, emit_selftest, emit_vectors  # noqa: E402
from codegen_c.program.interface import Interface, Port  # noqa: E402
from tvm_ext.core.errors import DoesNotFit  # noqa: E402
from tvm_ext.core.platform import Platform  # noqa: E402
from tvm_ext.core.toolchain import compile_objects, find_program, link_elf, section_sizes  # noqa: E402
from tvm_ext.execution.board import run_qemu  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "kernel_libraries.json"
RISCV = {
    "riscv32": ("-march=rv32imac",),
    "riscv32_zve32x": ("-march=rv32imac_zve32x", "-DUSE_VEXT"),
}
"""Platform -> flags of muRISCV-NN's kernels."""
ARM = ("cortex_m0plus", "cortex_m3", "cortex_m4", "cortex_m7", "cortex_m33", "cortex_m55", "cortex_m85")
KERNELS = (
    "ConvolutionFunctions", "FullyConnectedFunctions", "NNSupportFunctions", "PoolingFunctions", "SoftmaxFunctions",
    "BasicMathFunctions", "TransposeFunctions",
)  # fmt: skip
FLAGS = ("-O3", "-ffunction-sections", "-fdata-sections", "-w")
CLANG_FLAGS = (
    "--target=riscv32-unknown-elf", "-mabi=ilp32", "-isystem", "/usr/lib/picolibc/riscv64-unknown-elf/include",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Kernels:
    """A library, and the command that compiles it for one platform. source: a checkout of it."""

    library: Library
    platform: Platform
    source: Path
    command: tuple[str, ...]

    def compiled(self, files: Sequence[Path], folder: Path) -> list[Path]:
        """Objects in a folder of their own."""
        folder.mkdir(parents=True)
        include = self.source / "Include"
        headers = [f"-I{place}" for place in (include, include / "Internal", include / "CMSIS" / "NN" / "Include")]
        objects = [folder / f"{file.stem}.o" for file in files]
        for file, target in zip(files, objects, strict=True):
            subprocess.run([*self.command, *FLAGS, *headers, "-c", file, "-o", target], check=True)
        return objects

    def files(self) -> list[Path]:
        """Kernels of int8, and what they call."""
        found = [file for kind in KERNELS for file in sorted((self.source / "Source" / kind).glob("*.c"))]
        return [file for file in found if not re.search(r"(?<!s8)_(s16|f16|f32|flt)\.c", file.name)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--cmsis-nn", type=Path, help="a checkout of CMSIS-NN")
    parser.add_argument("--muriscv-nn", type=Path, help="a checkout of muRISCV-NN")
    parser.add_argument("--clang", default="clang-16", help="the compiler for RISC-V (%(default)s)")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    found: dict[str, dict[str, Any]] = {}
    for kernels in asked(options.cmsis_nn, options.muriscv_nn, options.clang):
        with TemporaryDirectory(prefix="tvm_ext_") as name:
            objects = kernels.compiled(kernels.files(), Path(name) / "kernels")
            for model in options.models:
                try:
                    one = figures(model, kernels, objects, Path(name) / model.stem)
                except DoesNotFit as error:
                    print(model.stem, kernels.platform.name, str(error).splitlines()[0])
                    continue
                one = {"library": kernels.library.name, **one}
                found.setdefault(model.stem, {})[kernels.platform.name] = one
                print(model.stem, kernels.platform.name, one, flush=True)
    write_result(options.results, stamped({"models": found}))
    return 0


def asked(cmsis_nn: Path | None, muriscv_nn: Path | None, clang: str) -> Iterator[Kernels]:
    """Each library on each of its platforms."""
    for name in ARM if cmsis_nn else ():
        assert cmsis_nn is not None
        platform = Platform.load(name)
        command = (find_program(f"{platform.toolchain.prefix}gcc"), *platform.toolchain.flags)
        yield Kernels(library=CMSIS_NN, platform=platform, source=cmsis_nn.resolve(), command=command)
    for name, flags in RISCV.items() if muriscv_nn else ():
        assert muriscv_nn is not None
        yield Kernels(
            library=MURISCV_NN, platform=Platform.load(name), source=muriscv_nn.resolve(),
            command=(clang, *CLANG_FLAGS, *flags),
        )  # fmt: skip


def figures(model: Path, kernels: Kernels, objects: list[Path], folder: Path) -> dict[str, int]:
    """Instructions of one inference, and bytes; largest difference from LiteRT's output in steps."""
    text, sample, expected = model_c(model, f"{model.stem}_run", kernels.library)
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
        **emit_firmware(interface, kernels.platform),
        **emit_vectors(interface, [TestVector(inputs={"input": sample}, outputs={"output": expected})]),
        **emit_selftest(interface),
    }
    for file, content in texts.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(content, encoding="utf-8")
    own = kernels.compiled([folder / f"{model.stem}.c"], folder / "objects")
    platform = kernels.platform
    around = [*(folder / f"{model.stem}_{part}.c" for part in ("selftest", "vectors")), *(folder / "board").glob("*.c")]
    built = compile_objects(around, folder / "around", platform.toolchain, include_dirs=[folder])
    script = folder / "board" / "link.ld"
    elf = link_elf([*own, *objects, *built], folder / f"{model.stem}.elf", platform.toolchain, script=script)
    result = run_qemu(elf, platform, interface, [{"input": sample}])
    assert result.instructions is not None, "one processor runs"
    difference = np.abs(result.outputs[0]["output"].astype(int) - expected)
    size = section_sizes(own, platform.toolchain)[f"{model.stem}.o"]
    return {
        "instructions": result.instructions, "steps_from_litert": int(difference.max()),
        "tensor_bytes": size.bss, "stack_bytes": result.stack_bytes,
    }  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
