"""Figures of ways to compute layers, kept by what decides them: C, compiler, flags, board, tables of the core."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Self, TypeVar

from codegen_c.backend.build import Compiled
from codegen_c.emit.pieces import Piece
from codegen_c.emit.sources import emit_sources
from codegen_c.targets.registry import startup_of
from tvm_ext.core.options import Optimize
from tvm_ext.core.platform import Platform
from tvm_ext.core.processes.process import allowed_seconds, run_program
from tvm_ext.core.toolchain import compile_flags, find_compiler, find_program
from tvm_ext.execution.runner import Runner
from tvm_ext.profiling.core_table import CoreTable
from tvm_ext.services.cache import ResultCache
from tvm_ext.services.job import JobOutcome
from tvm_ext.tuning.layers_program import MeasuredWay, compiled_ways, renamed

_SECONDS = 60.0
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class WayFigures:
    """Executed instructions of one run of a way, and cycles as `tvm-ext profile` estimates or a device measures them.

    instructions: None of a device; cycles: None where there is no table of the core's.
    """

    instructions: int | None
    cycles: float | None

    @property
    def cost(self) -> float:
        """Estimated cycles, or instructions where these are not known."""
        return self.cycles if self.cycles is not None else self.instructions or 0


@dataclass(frozen=True, kw_only=True)
class RunFigures:
    """The same of one run of a whole model. outputs: a hash of their bytes."""

    instructions: int
    cycles: float | None
    outputs: str

    @classmethod
    def of(cls, layers: Sequence[WayFigures], outputs: bytes) -> Self:
        """Sums over the layers of a run in QEMU, and what it wrote."""
        cycles = [layer.cycles for layer in layers]
        known = [one for one in cycles if one is not None]
        return cls(
            instructions=sum(layer.instructions or 0 for layer in layers),
            cycles=sum(known) if len(known) == len(cycles) else None,
            outputs=hashlib.sha256(outputs).hexdigest(),
        )

    @property
    def cost(self) -> float:
        """Estimated cycles, or instructions where these are not known."""
        return self.cycles if self.cycles is not None else self.instructions


@dataclass(frozen=True, kw_only=True)
class Tools:
    """All beside a way's own C that decides its figures, as text: versions of programs, flags, platform, tables."""

    text: str

    @classmethod
    def of(cls, platform: Platform, optimize: Optimize, table: CoreTable | None, runner: Runner | None = None) -> Self:
        """Tools of this machine. runner: of a device in QEMU's place. Raises MissingTool."""
        toolchain = platform.toolchain_of(platform.processor)
        plugin = (files("tvm_ext.profiling") / "profile_plugin.c", files("tvm_ext.profiling") / "profile_counts.h")
        parts = [
            _version(find_compiler(toolchain)),
            f"runner {runner.text}" if runner else _version([find_program(startup_of(platform).emulator)]),
            " ".join(compile_flags(toolchain, optimize)), platform.to_json(),
            json.dumps(asdict(table), sort_keys=True) if table else "no table of cycles",
            *(file.read_text(encoding="utf-8") for file in plugin),
        ]  # fmt: skip
        return cls(text="\0".join(parts))


def key_of(way: MeasuredWay, platform: Platform, tools: Tools) -> str:
    """Name of a way's figures: a hash of its C and of the tools. Values of constants are not part of it."""
    return key_of_model(compiled_ways([renamed(way)], platform), tools)


def key_of_model(compiled: Compiled, tools: Tools) -> str:
    """The same of a whole model's run."""
    parts = (compiled.program, compiled.plan, compiled.interface, compiled.origin, compiled.platform)
    digest = hashlib.sha256(tools.text.encode())
    for name, text in sorted(emit_sources(*parts, weights=[Piece(text="")]).items()):
        digest.update(f"\0{name}\0{text}".encode())
    return digest.hexdigest()


def read_figures(cache: ResultCache, key: str) -> WayFigures | None:
    """Figures that were kept; None where there are none, or what is there is damaged."""
    return _read(cache, key, lambda values: WayFigures(instructions=values["instructions"], cycles=values["cycles"]))


def read_run(cache: ResultCache, key: str) -> RunFigures | None:
    """The same of a whole model's run."""
    return _read(cache, key, lambda values: RunFigures(**values))


def write_figures(cache: ResultCache, key: str, figures: WayFigures | RunFigures) -> None:
    """Keep figures."""
    cache.put(key, JobOutcome(result=json.dumps(asdict(figures)).encode()))


def _read(cache: ResultCache, key: str, made: Callable[[dict[str, Any]], T]) -> T | None:
    kept = cache.get(key)
    if kept is None or kept.result is None:
        return None
    try:
        return made(json.loads(kept.result))
    except (ValueError, TypeError, KeyError):
        return None


def _version(command: Sequence[str]) -> str:
    """Words that a program says of its version."""
    done = run_program([*command, "--version"], Path.cwd(), seconds=allowed_seconds(_SECONDS))
    return done.stdout
