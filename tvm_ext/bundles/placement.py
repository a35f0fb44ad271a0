"""Choose the processors of a bundle's models: whole models on one processor, or rows of a model on several.

A round is a problem of `relay_passes.solvers.processors`: its models are the tasks, and its links the values that pass
between them. The time of a model on a processor is the predicted time of the C that is compiled for this processor, so
each model of a round is compiled once for every kind of processor. Models outside of the round do not wait for each
other; each runs where it is fastest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from codegen_c.backend.build import Compiled
from codegen_c.costs.predict import predicted_cycles, time_model
from codegen_c.emit.layer_files import code_of
from codegen_c.program.rounds import RoundLink, passes_on
from relay_passes.solvers.processors.assign import assign_processors
from relay_passes.solvers.processors.problem import WHOLE, FormPart, ProcessorProblem, Route, Task, TaskForm, TaskValue
from tvm_ext.core.bundle_file import BundledModel, BundleFile
from tvm_ext.core.errors import BadBundle, DoesNotFit, TvmExtError
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform, Processor

_NANOSECONDS = 1_000_000_000
Compile = Callable[[BundledModel, Platform, BuildOptions], Compiled]


@dataclass(frozen=True, kw_only=True)
class BundlePlacement:
    """The processors of each model.

    runs_on: by model; the first one calls the model, the others compute parts. sequence: the models of the round, in an
    order that agrees with the list of each processor. nanoseconds: predicted time of a run, by model, for each choice
    that was compared. makespan, bound, alone: predicted nanoseconds of a round, their proved lower bound, and those of
    the round on the single processor that is fastest; None if nothing was compared.
    """

    runs_on: Mapping[str, tuple[str, ...]]
    sequence: tuple[str, ...] = ()
    nanoseconds: Mapping[str, Mapping[tuple[str, ...], int]] = field(default_factory=dict[str, Any])
    makespan: int | None = None
    bound: int | None = None
    alone: int | None = None


def place_models(
    file: BundleFile, platform: Platform, copy_cycles: Mapping[str, int], compile_model: Compile
) -> BundlePlacement:
    """Return the processors of all models of a bundle.

    copy_cycles: of the links of a model, by model. compile_model: compiles a model for a platform and options.
    Raises BadBundle for processors that cannot run a model, and what the compilation raises if it fails for all of the
    processors that a model may use.
    """
    choices = {model.name: choices_of(file, index, platform) for index, model in enumerate(file.models)}
    times = {
        model.name: _times(model, choices[model.name], platform, copy_cycles.get(model.name, 0), compile_model)
        for model in file.models
        if len(choices[model.name]) > 1
    }
    runs_on = {name: found[0] for name, found in choices.items()}
    runs_on |= {name: min(found, key=lambda one: (found[one], len(one))) for name, found in times.items()}
    if not any(name in times for name in file.round):
        return BundlePlacement(runs_on=runs_on, sequence=file.round, nanoseconds=times)
    for index, model in enumerate(file.models):
        if model.name in file.round and model.name not in times:
            times[model.name] = _times(
                model, choices_of(file, index, platform), platform, copy_cycles.get(model.name, 0), compile_model
            )
    return _RoundProblem(file, platform, times).solved(runs_on)


def choices_of(file: BundleFile, index: int, platform: Platform) -> list[tuple[str, ...]]:
    """Return the processors on which a model may run: each alone, and all together with shared rows.

    Raises BadBundle.
    """
    model = file.models[index]
    where, options = f"models[{index}].processors", model.build_options(())
    first, known = platform.processor.name, [core.name for core in platform.processors]
    asked = model.processors or (known if model.name in file.round else [first])
    for name in asked:
        if name not in known:
            raise BadBundle(f"{where}: {platform.name} has no processor {name!r}; it has {', '.join(known)}.")
    usable = [core.name for core in replace(options, processors=tuple(known)).cores_of(platform)]
    if model.processors and (unusable := [name for name in asked if name not in usable]):
        needed = ", ".join(dict.fromkeys((platform.activations, platform.states, platform.weights)))
        raise BadBundle(
            f"{where}: {unusable[0]} of {platform.name} cannot run models of a bundle: it has to be a core that "
            f"reaches {needed}, with [[signals]] "
            f"to {first} and back. Choose among {', '.join(usable)}."
        )
    cores = [name for name in known if name in asked and name in usable]
    if refused := _needs_the_first(options):
        if model.processors and first not in model.processors:
            raise BadBundle(f"{where}: {model.name} has {refused}. Change it, or add {first} to processors.")
        cores = [first]
    shares = first in cores and len(cores) > 1 and model.states in (None, {})
    return [*((name,) for name in cores), *([(first, *cores[1:])] if shares else [])]


def _needs_the_first(options: BuildOptions) -> str:
    """Return the option because of which the first processor has to run a model; empty if no option demands it."""
    if options.io != "arena":
        return f"io = {options.io!r}, so that its run takes arguments, which no command to another processor has"
    if options.context != "static":
        return f"context = {options.context!r}, so that its run takes an instance, which no command has"
    return "tune, which measures kernels on the first processor" if options.tune else ""


def platform_for(platform: Platform, runs_on: Sequence[str]) -> Platform:
    """Return the platform as a model sees it: with the processor that calls the model ahead of the others."""
    others = [core for core in platform.processors if core.name != runs_on[0]]
    return replace(platform, processors=(platform.processor_named(runs_on[0]), *others))


def options_for(model: BundledModel, runs_on: Sequence[str]) -> BuildOptions:
    """Return the options of a model that runs on some processors."""
    return replace(model.build_options(()), processors=tuple(runs_on))


def _times(
    model: BundledModel,
    choices: Sequence[tuple[str, ...]],
    platform: Platform,
    copies: int,
    compile_model: Compile,
) -> dict[tuple[str, ...], int]:
    """Return the predicted nanoseconds of a run for each choice of processors that the model can be compiled for.

    copies: cycles of the processor that calls the model, for its linked outputs.
    """
    found: dict[tuple[str, ...], int] = {}
    known: dict[tuple[object, ...], Compiled] = {}
    refusal: TvmExtError | None = None
    for runs_on in choices:
        seen, core = platform_for(platform, runs_on), platform.processor_named(runs_on[0])
        key = (code_of(core), len(runs_on))
        try:
            if key not in known:
                known[key] = compile_model(model, seen, options_for(model, runs_on))
        except DoesNotFit as error:
            refusal = error
            continue
        compiled = known[key]
        if len(runs_on) == 1:
            time = time_model(seen, optimize=compiled.optimize)
            found[runs_on] = _nanoseconds(predicted_cycles(compiled.program, time) + copies, core)
        elif compiled.parallel and compiled.placement and not compiled.program.states:
            makespan = compiled.placement["makespan_cycles"] + copies
            found[(core.name, *compiled.interface.servers)] = _nanoseconds(makespan, core)
    if not found:
        assert refusal is not None, "a choice was compiled or refused"
        raise refusal
    return found


def _nanoseconds(cycles: float, core: Processor) -> int:
    return round(cycles * _NANOSECONDS / core.clock_hz)


class _RoundProblem:
    """The models of a round as tasks, in the round's order, in which links pass values on."""

    def __init__(self, file: BundleFile, platform: Platform, times: Mapping[str, dict[tuple[str, ...], int]]) -> None:
        self.file, self.platform, self.times = file, platform, times
        self.models = file.round
        used = {name for model in self.models for runs_on in times[model] for name in runs_on}
        first = platform.processor.name
        self.cores = [core for core in platform.processors if core.name in used or core.name == first]
        self.forms = {model: list(times[model]) for model in self.models}

    def solved(self, runs_on: Mapping[str, tuple[str, ...]]) -> BundlePlacement:
        """Return the placement of the round beside that of other models."""
        found = assign_processors(self.problem, "makespan")
        assert found is not None, "every order is possible"
        begin = 1  # the task at which the round begins
        chosen = {model: self.forms[model][found.forms[begin + index]] for index, model in enumerate(self.models)}
        sequence = [self.models[task - begin] for task in found.sequence if 0 <= task - begin < len(self.models)]
        alone = [
            sum(self.times[model][(core.name,)] for model in self.models)
            for core in self.cores
            if all((core.name,) in self.times[model] for model in self.models)
        ]
        return BundlePlacement(
            runs_on={**runs_on, **chosen}, sequence=tuple(sequence), nanoseconds=self.times, makespan=found.value,
            bound=found.bound, alone=min(alone, default=None),
        )  # fmt: skip

    @cached_property
    def problem(self) -> ProcessorProblem:
        """The round, between a task at which it begins and a task at which it ends, both on the first processor."""
        here = Task(forms=(TaskForm(parts=(FormPart(processor=0, time=0),)),))
        names = [core.name for core in self.cores]
        forms = [tuple(self._form(model, one, names) for one in self.forms[model]) for model in self.models]
        tasks = [here, *(Task(forms=own) for own in forms)]
        end = len(tasks)
        values = [TaskValue(maker=0, readers=tuple(range(1, end)), size_bytes=0)]
        values += [
            TaskValue(maker=1 + self.models.index(source), readers=(1 + self.models.index(target),), size_bytes=0)
            for source, target in dict.fromkeys(
                (link.source, link.target) for link in round_links(self.file) if passes_on(link, self.models)
            )
        ]
        values += [TaskValue(maker=task, readers=(end,), size_bytes=0) for task in range(1, end)]
        routes = {
            (one, other): Route(signal_time=_nanoseconds(signal.latency_cycles, source))
            for one, source in enumerate(self.cores)
            for other, target in enumerate(self.cores)
            if (signal := self.platform.signal_between(source.name, target.name))
        }
        return ProcessorProblem(
            names=tuple(names), powers=tuple(0 for _ in names), tasks=(*tasks, here), values=tuple(values),
            routes=routes,
        )  # fmt: skip

    def _form(self, model: str, runs_on: tuple[str, ...], names: Sequence[str]) -> TaskForm:
        """Return the task's form on some processors."""
        time = self.times[model][runs_on]
        shares = [WHOLE - WHOLE // len(runs_on) * (len(runs_on) - 1), *([WHOLE // len(runs_on)] * (len(runs_on) - 1))]
        return TaskForm(
            parts=tuple(
                FormPart(processor=names.index(name), time=time, share=share)
                for name, share in zip(runs_on, shares, strict=True)
            )
        )


def round_links(file: BundleFile) -> list[RoundLink]:
    """Return the links between models of the round, by the names of their C functions."""
    found: list[RoundLink] = []
    for number, link in enumerate(file.links, 1):
        (source, _), (target, _) = link.ends
        if source in file.round and target in file.round:
            found.append(RoundLink(name=f"{file.name}_link_{number}", source=source, target=target))
    return found
