"""Times of kernels on cores, which predicted time is made of, fitted to executed instructions and counted accesses.

    python benchmarks/kernel_times.py
    python benchmarks/kernel_times.py --platforms cortex_m4 --networks ds_cnn_int8
    python benchmarks/kernel_times.py --optimize size

Operators of the zoo's networks are run in QEMU, each alone, by every kernel that takes them and is modelled at no
more than 4 times the least; tensors, constants and scratch lie in memories of their own. A kernel that is the best
one of some operators is run for these alone: for others it would seldom be chosen, and its loops take other times
there. For each kernel and core a row comes out: cycles as `tvm-ext profile` estimates them, without what memories
add, for each modelled instruction (the median), and transactions, bursts and bytes for each byte that the kernel is
modelled to move (the sums' ratio). It is written to the folder of the target:
`codegen_c/targets/<target>/times/<core>.toml` for code that is compiled for speed, and `times_for_size/<core>.toml`
for code that is compiled for size, because kernels then have other loops. `benchmarks/placement_times.py` says how
near predictions come, on these networks and on others.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tvm_ext  # noqa: E402
from benchmarks import zoo  # noqa: E402
from benchmarks.measure.roles import Measured, Subject, by_roles, measured  # noqa: E402
from codegen_c.backend.build import Compiled  # noqa: E402
from codegen_c.kernels.registry import candidates  # noqa: E402
from codegen_c.operators.titles import operator_digest  # noqa: E402
from codegen_c.targets.read_times import FOLDERS, PARTS  # noqa: E402
from codegen_c.targets.registry import instruction_set_of, target_of  # noqa: E402
from tvm_ext import BuildOptions, Platform  # noqa: E402
from tvm_ext.compilation.pipeline import compile_model  # noqa: E402
from tvm_ext.core.options import CompileFor  # noqa: E402
from tvm_ext.core.time_model import Traffic  # noqa: E402
from tvm_ext.profiling.core_table import core_table  # noqa: E402
from tvm_ext.tuning.layers import FARTHEST  # noqa: E402

NETWORKS = (
    *(f"{name}_{dtype}" for name in ("ds_cnn", "resnet8", "mobilenet_v1_025_96", "autoencoder")
      for dtype in ("int8", "fp32")),
    "words_1d_int8", "factored_int8", "wide_windows_int8", "gated_unet_16_int8", "gated_dense_block_8_int8",
    "gated_unet_16_fp32", "ffn_16_128_512_fp32", "ffn_16_128_512_int8",
)  # fmt: skip
MOST_RUNS = 8
"""Runs of one kernel."""
MOST_INSTRUCTIONS = 8_000_000
"""Modelled, of a run: larger layers take long in QEMU, and say no more."""
_DIGITS = 3


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--networks", nargs="*", default=NETWORKS)
    parser.add_argument("--platforms", nargs="*", default=sorted(platforms()))
    parser.add_argument("--optimize", choices=sorted(FOLDERS), default="speed", help="what the code is compiled for")
    options = parser.parse_args(arguments)
    for name in options.platforms:
        platform = platforms()[name]
        print(name, flush=True)
        found = subjects(options.networks, platform, options.optimize)
        runs = list(measured(chosen(found), by_roles(platform), options.optimize))
        target, table = instruction_set_of(platform.processor), core_table(platform)
        folder = Path(str(files(target.package))) / FOLDERS[options.optimize]
        path = folder / f"{platform.core_of(platform.processor)}.toml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(times_text(table.cpus, runs, options.optimize), encoding="utf-8")
        print(path.relative_to(ROOT), len(runs), "runs", len({run.kernel for run in runs}), "kernels", flush=True)
    return 0


def platforms() -> dict[str, Platform]:
    """Platforms that kernels are run on: one for each of Arm's cores with a table of cycles, and target that it runs,
    and one of a RISC-V core without vectors.

    That of the Cortex-M0+ has more memory than the shipped one, of which each role takes a part; that of the Cortex-M55
    has room for large weights, and all tensors in one memory.
    """
    names = ("cortex_m3", "cortex_m4", "cortex_m7", "cortex_m33", "riscv32")
    found = {name: Platform.load(name) for name in names}
    pair = Platform.load("dual_m33")
    found["cortex_m33_plain"] = replace(pair, processors=pair.processors[:1], links=pair.links[:2], signals=())
    large = Platform.load("always_on")
    found["cortex_m55"] = replace(
        large, memories=tuple(memory for memory in large.memories if memory.name != "dtcm"),
        links=tuple(link for link in large.links if "dtcm" not in (link.source, link.target)),
    )  # fmt: skip
    small = Platform.load("cortex_m0plus")
    assert small.board is not None, "it has one"
    sizes = {"nrf51-soc.flash-size": 0x80_0000, "nrf51-soc.sram-size": 0x80_0000}
    memories = tuple(replace(memory, capacity_bytes=0x80_0000) for memory in small.memories)
    found["cortex_m0plus"] = replace(small, memories=memories, board=replace(small.board, qemu_sizes=sizes))
    return found


def chosen(found: Iterable[Subject]) -> list[Subject]:
    """As many of each kernel as are run, spread over those that are small enough; those it is best for, if any are."""
    by_kernel: dict[str, list[Subject]] = {}
    for one in found:
        if one.made.instructions <= MOST_INSTRUCTIONS:
            by_kernel.setdefault(one.made.kernel, []).append(one)
    best = [[one for one in own if one.is_best] or own for own in by_kernel.values()]
    return [
        one
        for own in best
        for place, one in enumerate(own)
        if place * MOST_RUNS // len(own) != (place - 1) * MOST_RUNS // len(own) or len(own) <= MOST_RUNS
    ]


def subjects(networks: Sequence[str], platform: Platform, optimize: CompileFor) -> Iterator[Subject]:
    """Operators of networks with each kernel that may compute them, those that are equal once."""
    core, known = platform.core_of(platform.processor), set[str]()
    target = target_of(platform.processor, core=core, optimize=optimize)
    target = replace(target, instruction_set=replace(target.instruction_set, times_for_size={}))  # as models count
    for network in networks:
        for call in compiled(network, platform, optimize).program.kernel_calls():
            operator = call.operator
            digest = operator_digest(operator) if operator else None
            if operator is None or (digest and digest in known):
                continue
            if digest is None:
                yield Subject(form=operator, made=call.implementation)
                continue
            known.add(digest)
            found = [one for one in candidates(operator, target) if not one.target.block]
            least = min(one.modelled for one in found)
            yield from (
                Subject(form=one.form, made=one.made, is_best=one.modelled == least)
                for one in found
                if one.modelled <= FARTHEST * least
            )


def compiled(network: str, platform: Platform, optimize: CompileFor) -> Compiled:
    """A network compiled for a platform. Raises DoesNotFit."""
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        path = Path(name) / "model.onnx"
        onnx.save(zoo.build(network), path)
        options = BuildOptions(name="network", optimize="size" if optimize == "size" else "balanced")
        return compile_model(tvm_ext.load(path), platform, options)[1]


def times_text(cpus: Sequence[str], runs: Sequence[Measured], optimize: CompileFor) -> str:
    """The file of a core: what an executed instruction takes, and a row for each kernel.

    Kernels' models count the instructions of code that is compiled for speed. Where code is compiled for size, the row
    has the executed instructions as well.
    """
    listed = ", ".join(f'"{cpu}"' for cpu in cpus)
    cycles = float(np.median([run.cycles / run.executed for run in runs]))
    lines = [
        "# Written by benchmarks/kernel_times.py. Of each kernel: cycles for each modelled instruction; transactions,",
        "# bursts and bytes for each byte that it is modelled to move; of stack and code, for each instruction.",
        *(["# instructions: executed for each that its model counts, by which modelled instructions are corrected."]
          if optimize == "size" else []),
        f"cpus = [{listed}]", f"cycles = {_number(cycles)}", "", "[kernels]",
    ]  # fmt: skip
    by_kernel: dict[str, list[Measured]] = {}
    for run in runs:
        by_kernel.setdefault(run.kernel, []).append(run)
    rows = {kernel: row(found, corrected=optimize == "size") for kernel, found in sorted(by_kernel.items())}
    lines += [f"{kernel} = {{ {text} }}" for kernel, text in rows.items()]
    return "".join(f"{line}\n" for line in lines)


def row(runs: Sequence[Measured], *, corrected: bool) -> str:
    """Times of one kernel as TOML. corrected: with executed for modelled instructions, to which the others refer."""
    factor = float(np.median([run.executed / max(run.modelled, 1) for run in runs])) if corrected else 1.0
    cycles = float(np.median([run.cycles / max(run.modelled, 1) for run in runs])) / factor
    parts = [*([f"instructions = {_number(factor)}"] if corrected else []), f"cycles = {_number(cycles)}"]
    for role in PARTS:
        counted = [run.traffic.get(role, Traffic(transactions=0, bursts=0, num_bytes=0)) for run in runs]
        own = role in ("stack", "code")
        modelled = sum(run.modelled * factor if own else run.modelled_bytes[role] for run in runs)
        if modelled and any(one.num_bytes for one in counted):
            sums = [sum(getattr(one, key) for one in counted) for key in ("transactions", "bursts", "num_bytes")]
            parts.append(f"{role} = [{', '.join(_number(value / modelled) for value in sums)}]")
        elif modelled and not own:
            parts.append(f"{role} = [0, 0, 0]")
    return ", ".join(parts)


def _number(value: float) -> str:
    return f"{float(f'{value:.{_DIGITS}g}'):g}"


if __name__ == "__main__":
    raise SystemExit(main())
