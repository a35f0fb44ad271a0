"""Cache of measurements, by a hash of everything that affects them: C, compiler, flags, board, table of the core."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from typing import Self, TypeVar

from codegen_c.emit.sources import emit_sources
from tvm_ext.core.options import CompileFor
from tvm_ext.core.platform import Platform
from tvm_ext.core.toolchain import compile_flags, find_compiler
from tvm_ext.execution.runner import Runner
from tvm_ext.execution.tool_versions import tool_versions
from tvm_ext.profiling.core_table import CoreTable
from tvm_ext.services.cache import ResultCache
from tvm_ext.services.job import JobOutcome, code_hash
from tvm_ext.tuning.layers_program import MeasuredMethod, compiled_methods, renamed

_MEASURING = ("tvm_ext/profiling", "tvm_ext/tuning", "tvm_ext/execution", "codegen_c/targets", "codegen_c/emit")
"""Our own code that affects measurements: firmware, QEMU's plugins, and the evaluation of their counts."""
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class MethodMeasurement:
    """Measurements of a run of a candidate: executed instructions and cycles.

    Cycles are estimated from the run in QEMU, or measured on a device.

    instructions: None on a device. cycles: None in QEMU without a table for the core.
    """

    instructions: int | None
    cycles: float | None

    @property
    def cost(self) -> float:
        """Cycles, or instructions if the cycles are not known."""
        return self.cycles if self.cycles is not None else self.instructions or 0


@dataclass(frozen=True, kw_only=True)
class Tools:
    """Text of everything besides a candidate's C that affects measurements: tool versions, flags, platform, table."""

    text: str

    @classmethod
    def of(
        cls, platform: Platform, optimize: CompileFor, table: CoreTable | None, runner: Runner | None = None
    ) -> Self:
        """Return the tools of this machine. runner: of a device instead of QEMU. Raises MissingTool."""
        toolchain = platform.toolchain_of(platform.processor)
        find_compiler(toolchain)
        parts = [
            *tool_versions(platform, host=False, emulator=runner is None), f"runner {runner.text}" if runner else "",
            " ".join(compile_flags(toolchain, optimize)), platform.to_json(),
            json.dumps(asdict(table), sort_keys=True) if table else "no table of cycles", code_hash(_MEASURING),
        ]  # fmt: skip
        return cls(text="\0".join(parts))


def key_of(method: MeasuredMethod, platform: Platform, tools: Tools) -> str:
    """Return the cache key of a candidate: a hash of its C and of the tools, without the values of constants."""
    compiled = compiled_methods([renamed(method)], platform)
    parts = (compiled.program, compiled.plan, compiled.interface, compiled.origin, compiled.platform)
    digest = hashlib.sha256(tools.text.encode())
    for name, text in sorted(emit_sources(*parts, weights={}).items()):
        digest.update(f"\0{name}\0{text}".encode())
    return digest.hexdigest()


def read_measurement(cache: ResultCache, key: str) -> MethodMeasurement | None:
    """Return the cached measurements; None if there are none or they are damaged."""
    kept = cache.get(key)
    if kept is None or kept.result is None:
        return None
    try:
        values = json.loads(kept.result)
        found = MethodMeasurement(instructions=values["instructions"], cycles=values["cycles"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return found if _are_counts(found) else None


def write_measurement(cache: ResultCache, key: str, measurements: MethodMeasurement) -> None:
    """Store measurements in the cache."""
    cache.put(key, JobOutcome(result=json.dumps(asdict(measurements)).encode()))


def _are_counts(found: MethodMeasurement) -> bool:
    """Return True if measurements have valid types and ranges."""
    instructions, cycles = found.instructions, found.cycles
    is_counted = isinstance(instructions, int) and not isinstance(instructions, bool) and instructions >= 0
    is_timed = isinstance(cycles, int | float) and not isinstance(cycles, bool) and 0 <= cycles < math.inf
    return (is_counted or (instructions is None and is_timed)) and (cycles is None or is_timed)
