"""Executed instructions of many kernel calls, each alone, a few dozen of them in one firmware."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from codegen_c.arena.plan import plan_memory
from codegen_c.backend.build import Compiled
from codegen_c.emit.firmware import emit_firmware, instruction_shift, qemu_arguments
from codegen_c.kernels.contract import StoredRows
from codegen_c.program.interface import Interface, Port
from codegen_c.program.program import Program
from codegen_c.program.steps import KernelCall
from tvm_ext.core.errors import RunFailed
from tvm_ext.core.platform import Platform
from tvm_ext.core.toolchain import compile_objects, find_program, link_elf

MOST_TOGETHER = 24
"""Kernels in one firmware."""
SHARE = 0.6
"""Part of a memory's bytes that the arenas, or the weights, of one firmware may take."""
TIME_LIMIT_S = 600.0

_MAIN = """\
#include <stdint.h>
#include <string.h>

#include "measure.h"
#include "semihosting.h"
#include "timer.h"

{includes}

extern uint32_t stack_limit[];

/* Bytes that repeat from run to run, others for each input: small numbers as float, places near the first one of 64
   bits, any others. */
static void fill(void *target, uint32_t count, int32_t is_float, int32_t is_long, uint32_t seed)
{{
    uint32_t state = seed;
    for (uint32_t i = 0u; i < count; i++) {{
        state = state * 1664525u + 1013904223u;
        if (is_float != 0) {{
            ((float *)target)[i] = (float)(int32_t)state * 0x1p-31f;
        }} else if (is_long != 0) {{
            ((int64_t *)target)[i] = (int64_t)(state >> 28);
        }} else {{
            ((uint8_t *)target)[i] = (uint8_t)(state >> 24);
        }}
    }}
}}

__attribute__((noipa)) static uint64_t ticks_of(int32_t (*run)(void))
{{
    uint32_t wrapped;
    timer_restart();
    const uint32_t begin = timer_now();
    (void)run();
    const uint32_t end = timer_now();
    const uint64_t ticks = timer_elapsed(begin, end, &wrapped);
    return wrapped != 0u ? UINT64_MAX : ticks;
}}

static void report(int32_t (*run)(void))
{{
    measurement empty = {{0}};
    measurement loop = {{0}};
    measurement subject = {{0}};
    empty.ticks = ticks_of((int32_t(*)(void))measure_empty);
    loop.ticks = ticks_of((int32_t(*)(void))measure_loop);
    subject.ticks = ticks_of(run);
    semihosting_print("step=");
    semihosting_print_decimal(subject.ticks == UINT64_MAX ? 0u : measure_instructions(subject, empty, loop));
    semihosting_print("\\n");
}}

int main(void)
{{
{steps}
    return 0;
}}
"""


def alone(compiled: Compiled, call: KernelCall, *, model: str = "layer") -> Compiled:
    """A program of one kernel call, all its rows, planned by itself.

    Its tensors stand alone: whole, and in no other one. A kernel that writes into another tensor, pixel by pixel, is
    replaced by the one that writes pixels behind each other.
    """
    names = list(dict.fromkeys((*call.inputs, *call.outputs)))
    tensors = {name: compiled.program.tensors[name] for name in names}
    implementation = call.implementation
    if any(part.pitch for name in call.outputs if (part := tensors[name].part)):
        assert implementation.keeping is not None, "it has been asked for a pitch"
        implementation = implementation.keeping(StoredRows())
    program = Program(
        name=model, inputs=tuple(dict.fromkeys(call.inputs)), outputs=call.outputs,
        tensors={name: replace(t, role="intermediate", ring=None, part=None) for name, t in tensors.items()},
        constants={name: compiled.program.constants[name] for name in call.constants},
        steps=(replace(call, implementation=implementation, rows=None),),
    )  # fmt: skip
    program, plan = plan_memory(program, activations=compiled.platform.activations)
    interface = Interface(
        model=model, io="arena", inputs=_ports(program, program.inputs), outputs=_ports(program, program.outputs)
    )
    return replace(compiled, program=program, plan=plan, interface=interface)


def measure_steps(steps: Sequence[tuple[Compiled, KernelCall]]) -> list[int]:
    """Executed instructions of each call, on the board of its platform in QEMU, which is the same for all.

    Raises MissingTool, BuildFailed, RunFailed.
    """
    found: list[int] = []
    for together in _batches([alone(c, call, model=f"k{index}") for index, (c, call) in enumerate(steps)]):
        found += _measured(together)
    return found


def _ports(program: Program, names: Sequence[str]) -> tuple[Port, ...]:
    tensors = [program.tensors[name] for name in names]
    return tuple(Port(name=t.name, source=t.name, shape=t.shape, dtype=t.dtype) for t in tensors)


def _batches(models: Sequence[Compiled]) -> Iterator[list[Compiled]]:
    """Runs of models that fit the board together."""
    run: list[Compiled] = []
    for model in models:
        platform = model.platform
        arenas = sum(m.plan.arena_bytes for m in [*run, model])
        weights = sum(m.program.weights_bytes for m in [*run, model])
        fits = arenas <= SHARE * platform.memory(platform.activations).capacity_bytes
        fits = fits and weights <= SHARE * platform.memory(platform.weights).capacity_bytes
        if run and (not fits or len(run) == MOST_TOGETHER):
            yield run
            run = []
        run.append(model)
    if run:
        yield run


def _measured(models: Sequence[Compiled]) -> list[int]:
    platform = models[0].platform
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        folder = Path(name)
        data: list[str] = []
        for model in models:
            for file, text in model.sources().items():
                (folder / file).write_text(text, encoding="utf-8")
                if re.fullmatch(r"k\d+_(memory|weights)\.c", file):
                    data.append(file)
        (folder / "all_data.c").write_text("".join(f'#include "{file}"\n' for file in data), encoding="utf-8")
        board = emit_firmware(models[0].interface, platform) | {"board/firmware.c": _main(models)}
        for file, text in board.items():
            (folder / file).parent.mkdir(exist_ok=True)
            (folder / file).write_text(text, encoding="utf-8")
        sources = [p for p in sorted(folder.rglob("*.c")) if p.name not in data]
        objects = compile_objects(sources, folder / "build", platform.toolchain, include_dirs=[folder])
        elf = link_elf(objects, folder / "steps.elf", platform.toolchain, script=folder / "board" / "link.ld")
        counts = _run(elf, platform)
    if len(counts) != len(models):
        raise RunFailed(f"{len(counts)} of {len(models)} kernels were counted; the firmware ended early.")
    return counts


def _main(models: Sequence[Compiled]) -> str:
    """Fills the inputs of each model, runs it twice, counts the second run."""
    lines: list[str] = []
    for model in models:
        filled: list[str] = []
        for seed, port in enumerate(model.interface.inputs, 1):
            kinds = [int(port.dtype == dtype) for dtype in ("float32", "int64")]
            count = port.num_elements if any(kinds) else port.num_bytes
            filled.append(f"    fill({model.interface.accessor(port)}(), {count}u, {kinds[0]}, {kinds[1]}, {seed}u);")
        lines += [*filled, f"    (void){model.interface.run}();", *filled, f"    report({model.interface.run});"]
    includes = "\n".join(f'#include "{model.interface.model}.h"' for model in models)
    return _MAIN.format(includes=includes, steps="\n".join(lines))


def _run(elf: Path, platform: Platform) -> list[int]:
    assert platform.board is not None, "firmware was made for it"
    shift = instruction_shift(platform.board)
    command = [
        find_program("qemu-system-arm"), *qemu_arguments(platform, shift=shift),
        "-semihosting-config", "enable=on,target=native", "-kernel", str(elf),
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=TIME_LIMIT_S, check=False
    )
    if done.returncode:
        raise RunFailed(f"{elf.name} on {platform.board.qemu_machine} failed: {(done.stdout + done.stderr)[-500:]}")
    said = done.stdout + done.stderr  # semihosting writes to the second
    return [int(count) for count in re.findall(r"^step=(\d+)", said, re.MULTILINE)]
