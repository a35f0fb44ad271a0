"""Counting and timing C on this machine: callgrind inside run(), and wall time against other callables."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter

from codegen_c.program.interface import Interface
from tvm_ext.core.platform import Toolchain
from tvm_ext.core.toolchain import compile_objects, find_compiler

X86_64_V3 = Toolchain(flags=("-march=x86-64-v3",))
NUM_RUNS = 2
_STACK_BYTES = 512 << 20  # peers keep their tensors there
_SLOT_S = 0.002  # less than other programs' turns, so that some slots are undisturbed
_MIN_ROUNDS, _MIN_TOTAL_S = 20, 4.0


def callgrind_ir(
    sources: Sequence[Path], interface: Interface, folder: Path, *, flags: Sequence[str] = ()
) -> int | None:
    """Instructions of one call of `<model>_run`, -std=c11 -O3 -march=x86-64-v3; None without valgrind.

    Two calls are counted and halved. Buffers belong to the caller and hold zeros.
    """
    if shutil.which("valgrind") is None:
        return None
    main = folder / "callgrind_main.c"
    main.write_text(_main(interface), encoding="utf-8")
    include = [sources[0].parent]
    objects = compile_objects([*sources, main], folder / "callgrind", X86_64_V3, flags=flags, include_dirs=include)
    program = folder / "callgrind_main"
    linked = [*find_compiler(X86_64_V3), *map(str, objects), "-Wl,-z,now", "-lm", "-o", str(program)]
    subprocess.run(linked, check=True, capture_output=True)
    command = [
        "valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", f"--main-stacksize={_STACK_BYTES}",
        f"--toggle-collect={interface.run}", str(program),
    ]  # fmt: skip
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    counted = re.search(r"Collected\s*:\s*(\d+)", done.stderr)
    if counted is None:
        raise RuntimeError(f"callgrind counted nothing: {done.stderr[-500:]}")
    return int(counted[1]) // NUM_RUNS


def wall_times_us(callables: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Microseconds of one call of each, the best of interleaved repetitions in one thread with a large stack."""
    found: dict[str, float] = {}
    threading.stack_size(_STACK_BYTES)
    thread = threading.Thread(target=lambda: found.update(_interleaved(callables)))
    thread.start()
    threading.stack_size(0)
    thread.join()
    return found


def _interleaved(callables: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    repeats = {}
    for name, call in callables.items():
        call()
        repeats[name] = max(1, int(_SLOT_S / max(_seconds(call, 1), 1e-7)))
    best = dict.fromkeys(callables, float("inf"))
    end, rounds = perf_counter() + _MIN_TOTAL_S, 0
    while rounds < _MIN_ROUNDS or perf_counter() < end:
        for name, call in callables.items():
            best[name] = min(best[name], _seconds(call, repeats[name]) / repeats[name])
        rounds += 1
    return {name: round(seconds * 1e6, 2) for name, seconds in best.items()}


def _seconds(call: Callable[[], object], repeats: int) -> float:
    begin = perf_counter()
    for _ in range(repeats):
        call()
    return perf_counter() - begin


def _main(interface: Interface) -> str:
    ports = (*interface.inputs, *interface.outputs)
    buffers = [f"static _Alignas(64) {port.c_type} port_{i}[{port.num_elements}];" for i, port in enumerate(ports)]
    arguments = ", ".join(f"port_{i}" for i in range(len(ports)))
    calls = "\n".join([f"    status |= {interface.run}({arguments});"] * NUM_RUNS)
    head = f'#include "{interface.model}.h"\n' + "\n".join(buffers)
    return f"{head}\n\nint main(void)\n{{\n    int32_t status = 0;\n{calls}\n    return status != 0;\n}}\n"
