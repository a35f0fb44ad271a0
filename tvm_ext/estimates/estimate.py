"""Estimate of a model on a platform: the pipeline without its last stages, so without a C compiler and an emulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from codegen_c.backend.build import Compiled
from codegen_c.costs.predict import BestCase, best_case, most_macs, predicted_cycles, time_model
from codegen_c.targets.registry import check_processors
from tvm_ext.compilation.pipeline import compile_model, refuse_tune
from tvm_ext.core.arguments import chosen_options, takes_options
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.core.rich_display import facts_html
from tvm_ext.core.short_tracebacks import short_tracebacks
from tvm_ext.frontends.calibration import Examples, Source, calibration_by_examples
from tvm_ext.frontends.load import ModelSource, load


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Predicted memory and time of a model, from its memory plan, without a package.

    ram_bytes, flash_bytes: bytes of tensors, states and constants in all memories of a kind, equal to the report of a
    build. memories: the same bytes by the name of the memory. arena_bytes, state_bytes, weights_bytes: parts of these.
    code_bytes, stack_bytes: always None, because they need a C compiler and a run. predicted_instructions: of a run, by
    the cost model of the kernels. predicted_cycles: of a run on the processor and its memories, at clock_hz.
    method: how the model was made to fit. best_case: of a model with branches, of which a run executes one, the least
    work of a run; macs, predicted_instructions and predicted_cycles are the most then. None without branches.
    """

    model: str
    platform: str
    ram_bytes: int
    flash_bytes: int
    memories: Mapping[str, int]
    arena_bytes: int
    state_bytes: int
    weights_bytes: int
    code_bytes: int | None
    stack_bytes: int | None
    macs: int
    predicted_instructions: int
    predicted_cycles: int
    clock_hz: int
    method: str
    best_case: BestCase | None = None

    @property
    def predicted_ms(self) -> float:
        """Time of one run at the platform's clock, in milliseconds."""
        return self.predicted_cycles * 1000 / self.clock_hz

    def __repr__(self) -> str:
        facts = ", ".join(f"{name} {value}" for name, value in self._facts())
        return f"<Estimate {self.model} on {self.platform}: {facts}>"

    def _repr_html_(self) -> str:
        return facts_html(f"{self.model} on {self.platform}, estimated", self._facts())

    def _facts(self) -> list[tuple[str, str]]:
        found = self.best_case
        best = [("best case", f"{found.macs:,} MACs, {found.cycles:,} cycles")] if found else []
        return [
            ("RAM", f"{self.ram_bytes:,} B"), ("flash", f"{self.flash_bytes:,} B without code"),
            ("MACs", f"{self.macs:,}"), ("instructions predicted", f"{self.predicted_instructions:,}"),
            ("cycles predicted", f"{self.predicted_cycles:,}"), ("ms", f"{self.predicted_ms:.2f}"), *best,
            ("method", self.method),
        ]  # fmt: skip


@takes_options
@short_tracebacks
def estimate(
    source: ModelSource,
    platform: Platform | str,
    options: BuildOptions | None = None,
    *,
    example_inputs: Examples | None = None,
    calibration: Source | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    **choices: object,
) -> Estimate:
    """Estimate the memory and time of a model: fast enough for a search over thousands of architectures.

    source, shapes, example_inputs: as in `load`. calibration, choices: as in `build`. Everything up to the validated
    memory plan is the same as in `build`, so a model fits here if and only if it fits there, with the same errors.
    Raises UnsupportedModel, DoesNotFit, BadInput, BadModel, BadOptions, BadPlatform.
    """
    options = chosen_options(options, choices, function=estimate)
    platform = platform if isinstance(platform, Platform) else Platform.load(platform)
    refuse_tune(options, "an estimate")
    check_processors(platform)
    mod = load(source, shapes=shapes, example_inputs=example_inputs, rounding=options.rounding)
    data = calibration_by_examples(mod, options, calibration, example_inputs)
    return estimate_of(compile_model(mod, platform, options, data)[1])


def estimate_of(compiled: Compiled) -> Estimate:
    """Return the estimate of a compiled model."""
    platform, program, plan = compiled.platform, compiled.program, compiled.plan
    time, added = time_model(platform, optimize=compiled.optimize), compiled.added_instructions
    used = dict(compiled.origin.memories)
    by_kind = {"ram": 0, "rom": 0}
    for memory in platform.memories:
        by_kind[memory.kind] += used.get(memory.name, 0)
    return Estimate(
        model=compiled.interface.model, platform=platform.name, ram_bytes=by_kind["ram"], flash_bytes=by_kind["rom"],
        memories=used, arena_bytes=plan.arena_bytes, state_bytes=plan.state_bytes,
        weights_bytes=program.weights_bytes, code_bytes=None, stack_bytes=None,
        macs=most_macs(program),
        predicted_instructions=compiled.modelled_instructions,
        predicted_cycles=round(predicted_cycles(program, time, added_instructions=added)),
        clock_hz=platform.processor.clock_hz,
        method=compiled.attempts[-1].method if compiled.attempts else "whole",
        best_case=best_case(program, time, added_instructions=added),
    )  # fmt: skip
