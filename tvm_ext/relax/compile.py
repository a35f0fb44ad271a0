"""The pipeline as `tvm.compile` takes it: regions run as our C, the rest as TVM compiles it."""

from __future__ import annotations

from concurrent.futures import Executor
from functools import cache

import tvm
from tvm import relax

from codegen_c.backend.tvm_regions import Submit, codegen_options, planning_by
from tvm_ext.compilation.model_forms import Forms, calibration_of, forms_of
from tvm_ext.compilation.pipeline import fitter_of, refuse_tune
from tvm_ext.compilation.stages import passes
from tvm_ext.core.decisions.models import KeptStates, ModelOrigin, PortNames
from tvm_ext.core.errors import BadOptions
from tvm_ext.core.model_nodes import with_next_names
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.core.short_tracebacks import short_tracebacks
from tvm_ext.fitting.fit import fit
from tvm_ext.fitting.fitter import Way
from tvm_ext.frontends.calibration import Source
from tvm_ext.frontends.load import load
from tvm_ext.relax.placement import (
    PlacedModule,
    Placing,
    is_placed,
    lowering,
    placed_module,
    refuse_options,
    with_own_code,
)
from tvm_ext.services.executors import check_services, opened_services
from tvm_ext.services.job import Job, OpenServices


@short_tracebacks
def relax_pipeline(
    platform: Platform | str,
    options: BuildOptions | None = None,
    *,
    calibration: Source | None = None,
    placing: Placing | None = None,
    jobs: int = 1,
    executor: Executor | None = None,
    scheduler: str | None = None,
) -> tvm.transform.Pass:
    """For `tvm.compile(mod, target, relax_pipeline=...)`: regions run as our C, the rest as TVM compiles it.

    placing: where the platform has processors of `kind = "tvm"`, or times are measured, choices of placing operators on
    them, or on TVM's own code for this machine; a module that `place` has placed keeps what it says. jobs: processes
    that plan regions at once, and compile a model in several ways where it has to be made to fit; executor and
    scheduler as those of `build`. What comes of it is the same for any number of them.
    """
    board = Platform.load(platform) if isinstance(platform, str) else platform
    chosen = options or BuildOptions()
    _refuse_options(chosen)
    check_services(jobs, executor, scheduler)
    board = with_own_code(board, chosen, placing)
    is_shared = bool(chosen.tvm_processors_of(board))
    if is_shared:
        refuse_options(board, chosen)
    if placing is not None and not is_shared:
        raise BadOptions(
            f'placing: {board.name} has no processor of kind = "tvm" in use; add one, leave it out, or have TVM\'s own '
            "code for this machine measured: Placing(measure=True), on a platform of this machine."
        )

    @tvm.transform.module_pass(opt_level=0, name=f"tvm_ext.{board.name}")
    def pipeline(mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        with opened_services(jobs, executor, scheduler) as services, planning_by(_submitting(services)):
            if is_shared:
                return _shared(mod, board, chosen, calibration, placing or Placing())
            return _as_regions(mod, board, chosen, calibration, services)

    return pipeline


def _submitting(services: OpenServices | None) -> Submit | None:
    return services and (lambda function, inputs: services.submit(Job(function=function, inputs=inputs)))


def _as_regions(
    mod: tvm.IRModule, board: Platform, chosen: BuildOptions, calibration: Source | None, services: OpenServices | None
) -> tvm.IRModule:
    """The module with its regions as our C."""
    loaded_forms = _forms(mod, board, chosen, calibration)
    forms = cache(lambda quantize: _with_states_as_ports(loaded_forms(quantize)))
    decides = chosen.ram is not None or chosen.quantize == "auto"
    decided = fit(fitter_of(forms, board, chosen, services), board, chosen)[1] if decides else None
    way = decided or Way(method="whole", options=chosen)
    loaded = forms(way.options.quantize)
    prefix = chosen.name or ModelOrigin.read(loaded).name
    stages = passes(board, way.options, prefix, way.memory_pass)
    generate = relax.transform.RunCodegen(codegen_options(board, way.options))
    lowered = tvm.transform.Sequential([*stages, generate])(loaded)
    lowered = lowered.without_attr("const_name_to_constant")  # they stand in the C text already
    return relax.get_pipeline("default_build")(lowered)


@short_tracebacks
def place(
    mod: tvm.IRModule,
    platform: Platform | str,
    options: BuildOptions | None = None,
    *,
    calibration: Source | None = None,
    placing: Placing | None = None,
) -> PlacedModule:
    """Operators placed on our C and on the platform's processors of `kind = "tvm"`, with a report, ready to compile.

    Where it has none and times are measured, on TVM's own code for this machine. Raises BadOptions, BadPlatform,
    UnsupportedModel, and MissingTool for a back end or device that is not here.
    """
    board = Platform.load(platform) if isinstance(platform, str) else platform
    chosen = options or BuildOptions()
    _refuse_options(chosen)
    board = with_own_code(board, chosen, placing)
    if not chosen.tvm_processors_of(board):
        raise BadOptions(
            f'place: {board.name} has no processor of kind = "tvm" in use; add one to its file, or have TVM\'s own '
            "code for this machine measured: placing = Placing(measure=True), on a platform of this machine."
        )
    loaded = _with_states_as_ports(_forms(mod, board, chosen, calibration)(chosen.quantize))
    return placed_module(loaded, board, chosen, placing or Placing())


def _shared(
    mod: tvm.IRModule, board: Platform, chosen: BuildOptions, calibration: Source | None, placing: Placing
) -> tvm.IRModule:
    """The module shared among our C and TVM's processors; one that is placed keeps what it says."""
    if is_placed(mod):
        return lowering(board, chosen, chosen.name or ModelOrigin.read(mod).name)(mod)
    placed = place(mod, board, chosen, calibration=calibration, placing=placing)
    return placed.pipeline(placed.module)


def _forms(mod: tvm.IRModule, board: Platform, chosen: BuildOptions, calibration: Source | None) -> Forms:
    loaded = load(mod)
    return forms_of(loaded, board, chosen, calibration_of(loaded, board, chosen, calibration))


def _refuse_options(chosen: BuildOptions) -> None:
    """Raises BadOptions for what only a package can be built with."""
    refuse_tune(chosen, "tvm.compile")
    if chosen.pin or chosen.keep or chosen.place_port:
        raise BadOptions(
            "pin, keep and place_port: inside tvm.compile the caller holds inputs and outputs; build a package instead."
        )
    if chosen.context == "caller":
        raise BadOptions(
            "context = 'caller': TVM calls compiled code without an instance; inside tvm.compile use context = "
            "'static', or build a package."
        )
    if chosen.flash is not None:
        raise BadOptions(
            "flash: inside tvm.compile no try follows another; choose weights = 'int4', or build a package."
        )
    if chosen.new_frames:
        raise BadOptions("new_frames: inside tvm.compile the caller holds what runs keep; build a package instead.")
    if chosen.input or chosen.argmax or chosen.labels or chosen.rename:
        raise BadOptions(
            "input, argmax, labels and rename: inside tvm.compile inputs and outputs are those of the module; build a "
            "package instead."
        )
    if chosen.io == "stream":
        raise BadOptions(
            "io = 'stream': TVM hands whole tensors to compiled code; inside tvm.compile use io = 'arena' or 'caller', "
            "or build a package."
        )


def _with_states_as_ports(mod: tvm.IRModule) -> tvm.IRModule:
    """The module whose caller holds its states: they are the last inputs and outputs, of the shapes they have there."""
    states, names = KeptStates.read(mod).states, PortNames.read(mod)
    if not states:
        return mod
    every = [*names.inputs, *(state.name for state in states)]
    ports = PortNames(inputs=tuple(every), outputs=tuple(with_next_names(names.outputs, states)))
    return KeptStates().write(ports.write(mod))
