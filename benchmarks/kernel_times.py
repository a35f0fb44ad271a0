"""Times of kernels on cores, which predicted time is made of, fitted to executed instructions and counted accesses.

    python benchmarks/kernel_times.py
    python benchmarks/kernel_times.py --platforms cortex_m4 --networks ds_cnn_int8

Operators of the zoo's networks are run in QEMU, each alone, by every kernel that takes them and is modelled at no more
than 4 times the least; tensors, constants and scratch lie in memories of their own. For each kernel and core a row
comes out: cycles as `tvm-ext profile` estimates them, without what memories add, for each modelled instruction (the
median), and transactions, bursts and bytes for each byte that the kernel is modelled to move (the sums' ratio). It is
written to the folder of the target, `codegen_c/targets/<target>/times/<core>.toml`. `benchmarks/placement_times.py`
says how near predictions come, on these networks and on others.
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
from codegen_c.targets.read_times import FOLDER, PARTS  # noqa: E402
from codegen_c.targets.registry import instruction_set_of, target_of  # noqa: E402
from tvm_ext import BuildOptions, Platform  # noqa: E402
from tvm_ext.compilation.pipeline import compile_model  # noqa: E402
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
    options = parser.parse_args(arguments)
    for name in options.platforms:
        platform = platforms()[name]
        print(name, flush=True)
        runs = list(measured(chosen(subjects(options.networks, platform)), by_roles(platform)))
        target, table = instruction_set_of(platform.processor), core_table(platform)
        with TemporaryDirectory() as _:
            path = Path(str(files(target.package))) / FOLDER / f"{platform.core_of(platform.processor)}.toml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(times_text(table.cpus, runs), encoding="utf-8")
        print(path.relative_to(ROOT), len(runs), "runs", len({run.kernel for run in runs}), "kernels", flush=True)
    return 0


def platforms() -> dict[str, Platform]:
    """Platforms that kernels are run on: one for each of Arm's cores with a table of cycles, and target that it runs.

    That of the Cortex-M0+ has more memory than the shipped one, of which each role takes a part; that of the Cortex-M55
    has room for large weights, and all tensors in one memory.
    """
    names = ("cortex_m3", "cortex_m4", "cortex_m7", "cortex_m33")
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
    """As many of each kernel as are run, spread over those that are small enough."""
    by_kernel: dict[str, list[Subject]] = {}
    for one in found:
        if one.made.instructions <= MOST_INSTRUCTIONS:
            by_kernel.setdefault(one.made.kernel, []).append(one)
    return [
        one
        for own in by_kernel.values()
        for place, one in enumerate(own)
        if place * MOST_RUNS // len(own) != (place - 1) * MOST_RUNS // len(own) or len(own) <= MOST_RUNS
    ]


def subjects(networks: Sequence[str], platform: Platform) -> Iterator[Subject]:
    """Operators of networks with each kernel that may compute them, those that are equal once."""
    target, known = target_of(platform.processor, core=platform.core_of(platform.processor)), set[str]()
    for network in networks:
        for call in compiled(network, platform).program.kernel_calls():
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
            yield from (Subject(form=one.form, made=one.made) for one in found if one.modelled <= FARTHEST * least)


def compiled(network: str, platform: Platform) -> Compiled:
    """A network compiled for a platform. Raises DoesNotFit."""
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        path = Path(name) / "model.onnx"
        onnx.save(zoo.build(network), path)
        return compile_model(tvm_ext.load(path), platform, BuildOptions(name="network"))[1]


def times_text(cpus: Sequence[str], runs: Sequence[Measured]) -> str:
    """The file of a core: what an executed instruction takes, and a row for each kernel."""
    listed = ", ".join(f'"{cpu}"' for cpu in cpus)
    cycles = float(np.median([run.cycles / run.executed for run in runs]))
    lines = [
        "# Written by benchmarks/kernel_times.py. Of each kernel: cycles for each modelled instruction; transactions,",
        "# bursts and bytes for each byte that it is modelled to move; of stack and code, for each instruction.",
        f"cpus = [{listed}]", f"cycles = {_number(cycles)}", "", "[kernels]",
    ]  # fmt: skip
    by_kernel: dict[str, list[Measured]] = {}
    for run in runs:
        by_kernel.setdefault(run.kernel, []).append(run)
    lines += [f"{kernel} = {{ {row(found)} }}" for kernel, found in sorted(by_kernel.items())]
    return "".join(f"{line}\n" for line in lines)


def row(runs: Sequence[Measured]) -> str:
    """Times of one kernel as TOML."""
    cycles = float(np.median([run.cycles / max(run.modelled, 1) for run in runs]))
    parts = [f"cycles = {_number(cycles)}"]
    for role in PARTS:
        counted = [run.traffic.get(role, Traffic(transactions=0, bursts=0, num_bytes=0)) for run in runs]
        own = role in ("stack", "code")
        modelled = sum(run.modelled if own else run.modelled_bytes[role] for run in runs)
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
