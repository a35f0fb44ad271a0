"""Profile of a run: the instructions, estimated cycles, memory traffic and stack of each layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tvm_ext.core.rich_display import bars_html, rows_html

SCHEMA_VERSION = 1
NOTE = (
    "Cycles are estimated from executed instructions and not measured. The report's predicted cycles differ, because "
    "they are derived from predicted instructions, without a run."
)
WAITS = "waits"
"""Name of the cycles that memories add, beside the classes of instructions."""
_MOST_NAMED = 8


@dataclass(frozen=True, kw_only=True)
class FunctionProfile:
    """A function in a layer. cycles: estimated, by class of instruction; `waits` are the cycles that memories add."""

    name: str
    instructions: int
    cycles: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class MemoryProfile:
    """Data accesses of a layer to a memory. Instruction fetches are not counted.

    load_bursts, store_bursts: number of loads and stores that do not continue at the end of the access before.
    """

    name: str
    loads: int
    load_bursts: int
    loaded_bytes: int
    stores: int
    store_bursts: int
    stored_bytes: int
    wait_cycles: float


@dataclass(frozen=True, kw_only=True)
class LayerProfile:
    """Measurements of a layer of the model, or of the run function itself under the name `run`.

    kernel, macs: from the report; None for a function that is not a step. instructions: executed instructions by class.
    stack_bytes: largest stack below the caller of the run function; None if the layer stored nothing there.
    """

    name: str
    kernel: str | None
    macs: int | None
    instructions: Mapping[str, int]
    functions: tuple[FunctionProfile, ...]
    memories: tuple[MemoryProfile, ...]
    stack_bytes: int | None

    @property
    def num_instructions(self) -> int:
        return sum(self.instructions.values())

    @property
    def cycles(self) -> float:
        """Estimated cycles, including waits."""
        return sum(sum(function.cycles.values()) for function in self.functions)

    def cycles_by_kind(self) -> dict[str, float]:
        """Return the estimated cycles by class of instruction, and the waits."""
        found: dict[str, float] = {}
        for function in self.functions:
            for kind, cycles in function.cycles.items():
                found[kind] = found.get(kind, 0.0) + cycles
        return found


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Profile of a run on a board in QEMU.

    cycles: an estimate by the core's table. core_source: source of the table. core_bound: effects that the estimate
    ignores. skipped: names of the steps that the run skipped, because it did not take their branch; None if the calls
    of the run do not tell which branches it took.
    """

    model: str
    platform: str
    core_source: str
    core_bound: str
    clock_hz: int
    layers: tuple[LayerProfile, ...]
    skipped: tuple[str, ...] | None = ()

    def __repr__(self) -> str:
        time = f"{self.milliseconds(self.cycles):,.3f} ms"
        figures = f"{self.num_instructions:,} instructions executed, {self.cycles:,.0f} cycles estimated, {time}"
        return f"<Profile {self.model} on {self.platform}: {len(self.layers):,} layers, {figures}>"

    def _repr_html_(self) -> str:
        headings = ("layer", "kernel", "instructions", "cycles", "ms", "stack B")
        rows = [
            (one.name, one.kernel, one.num_instructions, round(one.cycles), self.milliseconds(one.cycles),
             one.stack_bytes)
            for one in self.layers
        ]  # fmt: skip
        bars = [(one.name, one.cycles, f"{one.cycles:,.0f}") for one in self.layers]
        traffic = [
            (one.name, memory.name, memory.loaded_bytes, memory.stored_bytes, round(memory.wait_cycles))
            for one in self.layers for memory in one.memories
        ]  # fmt: skip
        read = ("layer", "memory", "loaded B", "stored B", "wait cycles")
        shown = rows_html(repr(self)[1:-1], headings, rows, most=200) + bars_html("estimated cycles", bars)
        return shown + (rows_html("accesses to memories", read, traffic, most=200) if traffic else "")

    @property
    def branches_note(self) -> str:
        """Which branches the run took, as a sentence; empty if it skipped no step."""
        if self.skipped is None:
            return (
                "The branches that the run took are not known, because several branches call the same functions: a "
                "layer may have the name of another branch's layer."
            )
        if not self.skipped:
            return ""
        named = ", ".join(self.skipped[:_MOST_NAMED])
        others = f" and {len(self.skipped) - _MOST_NAMED} more" if len(self.skipped) > _MOST_NAMED else ""
        steps = "1 step of a branch" if len(self.skipped) == 1 else f"{len(self.skipped)} steps of branches"
        return f"The run skipped {steps} that it did not take: {named}{others}."

    @property
    def num_instructions(self) -> int:
        """Exact number of executed instructions."""
        return sum(layer.num_instructions for layer in self.layers)

    @property
    def cycles(self) -> float:
        """Estimated cycles."""
        return sum(layer.cycles for layer in self.layers)

    @property
    def stack_bytes(self) -> int | None:
        """Largest stack below the caller of the run function; None if nothing was stored there."""
        return max((layer.stack_bytes for layer in self.layers if layer.stack_bytes is not None), default=None)

    def milliseconds(self, cycles: float) -> float:
        """Return the time of a number of cycles at the platform's clock."""
        return cycles * 1000 / self.clock_hz

    def memories(self) -> Iterator[str]:
        """Yield the names of the accessed memories, in order."""
        yield from dict.fromkeys(memory.name for layer in self.layers for memory in layer.memories)

    def to_json(self) -> dict[str, Any]:
        """Return the content of profile.json: sums, then the layers in the order of their first run."""
        return {
            "schema_version": SCHEMA_VERSION,
            "note": NOTE,
            "model": self.model,
            "platform": self.platform,
            "core": {"source": self.core_source, "bound": self.core_bound},
            "clock_hz": self.clock_hz,
            "instructions": self.num_instructions,
            "estimated_cycles": round(self.cycles),
            "estimated_ms": round(self.milliseconds(self.cycles), 4),
            "stack_bytes": self.stack_bytes,
            **({"skipped_steps": self.skipped} if self.skipped != () else {}),
            "layers": [self._layer(layer) for layer in self.layers],
        }

    def folded(self) -> str:
        """Return the estimated cycles as folded stacks `model;layer;function count`, for viewers of flame graphs."""
        lines = [
            f"{self.model};{_frame(layer.name)};{_frame(function.name)} {round(sum(function.cycles.values()))}"
            for layer in self.layers
            for function in layer.functions
        ]
        return "".join(f"{line}\n" for line in lines)

    def _layer(self, layer: LayerProfile) -> dict[str, Any]:
        return {
            "name": layer.name,
            "kernel": layer.kernel,
            "macs": layer.macs,
            "instructions": layer.num_instructions,
            "estimated_cycles": round(layer.cycles),
            "estimated_ms": round(self.milliseconds(layer.cycles), 4),
            "stack_bytes": layer.stack_bytes,
            "instructions_by_class": dict(sorted(layer.instructions.items())),
            "cycles_by_class": {kind: round(cycles) for kind, cycles in sorted(layer.cycles_by_kind().items())},
            "memories": [asdict(memory) | {"wait_cycles": round(memory.wait_cycles)} for memory in layer.memories],
            "functions": [
                {
                    "name": function.name,
                    "instructions": function.instructions,
                    "estimated_cycles": round(sum(function.cycles.values())),
                }
                for function in layer.functions
            ],
        }


def _frame(name: str) -> str:
    """Return a name as a frame of a folded stack, without semicolons and spaces, which separate frames and counts."""
    return name.replace(";", ",").replace(" ", "")
