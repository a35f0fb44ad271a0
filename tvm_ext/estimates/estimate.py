"""A model's figures on a platform, by the pipeline without its last stages: no C compiler, no emulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from codegen_c.backend.build import Compiled
from codegen_c.costs.predict import predicted_cycles, time_model
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
    """Figures of a model that is compiled to a plan, and to no package.

    ram_bytes, flash_bytes: of tensors, states and constants in all memories of a kind, the same that a build's report
    has; memories: of each by its name. arena_bytes, state_bytes, weights_bytes: parts of these. code_bytes,
    stack_bytes: None, for only a C compiler knows them, and only a run measures. predicted_instructions: of one run, by
    the kernels' own costs. predicted_cycles: of its processor and memories, at clock_hz. method: what made it fit.
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
        return [
            ("RAM", f"{self.ram_bytes:,} B"), ("flash", f"{self.flash_bytes:,} B without code"),
            ("MACs", f"{self.macs:,}"), ("instructions predicted", f"{self.predicted_instructions:,}"),
            ("cycles predicted", f"{self.predicted_cycles:,}"), ("ms", f"{self.predicted_ms:.2f}"),
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
    """Figures of a model, as a search over architectures asks for them thousands of times.

    source, shapes, example_inputs: as `load` takes them; calibration, choices: as `build` does. Everything up to the
    memory plan is done as for a package, and the plan is validated: what raises here raises there, too, and what does
    not fit does not fit there.
    Raises UnsupportedModel, DoesNotFit, BadInput, BadModel, BadOptions, BadPlatform.
    """
    options = chosen_options(options, choices, function=estimate)
    platform = platform if isinstance(platform, Platform) else Platform.load(platform)
    refuse_tune(options, "an estimate")
    check_processors(platform)
    mod = load(source, shapes=shapes, example_inputs=example_inputs)
    data = calibration_by_examples(mod, options, calibration, example_inputs)
    return estimate_of(compile_model(mod, platform, options, data)[1])


def estimate_of(compiled: Compiled) -> Estimate:
    """Figures of a region with everything decided."""
    platform, program, plan = compiled.platform, compiled.program, compiled.plan
    used = dict(compiled.origin.memories)
    by_kind = {"ram": 0, "rom": 0}
    for memory in platform.memories:
        by_kind[memory.kind] += used.get(memory.name, 0)
    return Estimate(
        model=compiled.interface.model, platform=platform.name, ram_bytes=by_kind["ram"], flash_bytes=by_kind["rom"],
        memories=used, arena_bytes=plan.arena_bytes, state_bytes=plan.state_bytes,
        weights_bytes=program.weights_bytes, code_bytes=None, stack_bytes=None,
        macs=sum(call.implementation.macs for call in program.kernel_calls()),
        predicted_instructions=compiled.modelled_instructions,
        predicted_cycles=round(predicted_cycles(program, time_model(platform))), clock_hz=platform.processor.clock_hz,
        method=compiled.attempts[-1].method if compiled.attempts else "whole",
    )  # fmt: skip
