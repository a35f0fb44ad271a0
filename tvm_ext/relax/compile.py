"""The pipeline for `tvm.compile`: subgraphs run as our C, and TVM compiles the rest."""

from __future__ import annotations

from concurrent.futures import Executor
from functools import cache
from pathlib import Path

import tvm
from tvm import relax

from codegen_c.backend.tvm_regions import Submit, planning_by
from tvm_ext.compilation.model_forms import Forms, calibration_of, forms_of
from tvm_ext.compilation.pipeline import fitter_of
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
from tvm_ext.frontends.memory_scopes import refuse_scopes
from tvm_ext.relax.partition import partitioned, refuse_package_options
from tvm_ext.relax.pass_config import options_here
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
    dump: str | Path | None = None,
) -> tvm.transform.Pass:
    """Return a pipeline for `tvm.compile(mod, target, relax_pipeline=...)`: subgraphs run as our C, the rest as TVM's.

    options: by default those of the entered `pass_context`. placing: choices for the placement of operators on the
    platform's processors of `kind = "tvm"` or, if times are measured, on TVM's own code for this machine. The placement
    of a module from `place` is kept. jobs: number of parallel processes that plan subgraphs and make a model fit.
    executor, scheduler: as in `build`. The result does not depend on jobs, executor and scheduler. dump: folder for the
    C of the regions, with a folder for each.
    Raises BadOptions, BadPlatform, MissingTool.
    """
    given = Platform.load(platform) if isinstance(platform, str) else platform
    check_services(jobs, executor, scheduler)

    @cache
    def checked(chosen: str) -> tuple[Platform, BuildOptions]:
        return _checked(given, BuildOptions.from_json(chosen), placing)

    board, _ = checked((options or BuildOptions()).to_json())  # errors of arguments are raised at once

    @tvm.transform.module_pass(opt_level=0, name=f"tvm_ext.{board.name}")
    def pipeline(mod: tvm.IRModule, context: tvm.transform.PassContext) -> tvm.IRModule:
        board, chosen = checked(options_here(options, context).to_json())
        with opened_services(jobs, executor, scheduler) as services, planning_by(_submitting(services)):
            if chosen.tvm_processors_of(board):
                return _shared(mod, board, chosen, calibration, placing or Placing())
            return _as_regions(mod, board, chosen, calibration, services, "" if dump is None else str(dump))

    return pipeline


def _checked(platform: Platform, chosen: BuildOptions, placing: Placing | None) -> tuple[Platform, BuildOptions]:
    """Return the platform, with TVM's own code as a processor if it is measured, and the options. Raises BadOptions."""
    refuse_package_options(chosen)
    board = with_own_code(platform, chosen, placing)
    is_shared = bool(chosen.tvm_processors_of(board))
    if is_shared:
        refuse_options(board, chosen)
    if placing is not None and not is_shared:
        raise BadOptions(
            f'placing: {board.name} uses no processor of kind = "tvm"; add a processor of this kind, leave placing '
            "out, or measure TVM's own code on a platform of this machine with Placing(measure=True)."
        )
    return board, chosen


def _submitting(services: OpenServices | None) -> Submit | None:
    """Return a function that submits a job to the services; None without services."""
    return services and (lambda function, inputs: services.submit(Job(function=function, inputs=inputs)))


def _as_regions(
    mod: tvm.IRModule,
    board: Platform,
    chosen: BuildOptions,
    calibration: Source | None,
    services: OpenServices | None,
    dump: str,
) -> tvm.IRModule:
    """Return the module with its subgraphs compiled to our C."""
    loaded_forms = _forms(mod, board, chosen, calibration)
    forms = cache(lambda quantize: _with_states_as_ports(loaded_forms(quantize)))
    decides = chosen.ram is not None or chosen.quantize == "auto"
    decided = fit(fitter_of(forms, board, chosen, services), board, chosen)[1] if decides else None
    way = decided or Way(method="whole", options=chosen)
    loaded = forms(way.options.quantize)
    prefix = chosen.name or ModelOrigin.read(loaded).name
    regions = partitioned(loaded, board, way.options, prefix, way.memory_pass, dump)
    lowered = relax.transform.RunCodegen()(regions)
    lowered = lowered.without_attr("const_name_to_constant")  # the C text already contains the constants
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
    """Place operators on our C and on the platform's processors of `kind = "tvm"`. The result has a report.

    If the platform has no processor of this kind and times are measured, place them on TVM's own code for this machine.
    Raises BadOptions, BadPlatform, UnsupportedModel, and MissingTool for a back end or device that is not available.
    """
    board = Platform.load(platform) if isinstance(platform, str) else platform
    chosen = options_here(options)
    refuse_package_options(chosen)
    board = with_own_code(board, chosen, placing)
    if not chosen.tvm_processors_of(board):
        raise BadOptions(
            f'place: {board.name} uses no processor of kind = "tvm"; add a processor of this kind to its file, or '
            "measure TVM's own code on a platform of this machine with placing = Placing(measure=True)."
        )
    loaded = _with_states_as_ports(_forms(mod, board, chosen, calibration)(chosen.quantize))
    return placed_module(loaded, board, chosen, placing or Placing())


def _shared(
    mod: tvm.IRModule, board: Platform, chosen: BuildOptions, calibration: Source | None, placing: Placing
) -> tvm.IRModule:
    """Compile the module for our C and TVM's processors. The placement of a placed module is kept."""
    if is_placed(mod):
        return lowering(board, chosen, chosen.name or ModelOrigin.read(mod).name)(mod)
    placed = place(mod, board, chosen, calibration=calibration, placing=placing)
    return placed.pipeline(placed.module)


def _forms(mod: tvm.IRModule, board: Platform, chosen: BuildOptions, calibration: Source | None) -> Forms:
    loaded = load(mod)
    refuse_scopes(loaded)
    return forms_of(loaded, board, chosen, calibration_of(loaded, board, chosen, calibration))


def _with_states_as_ports(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with its states as the last inputs and outputs, so that the caller holds them."""
    states, names = KeptStates.read(mod).states, PortNames.read(mod)
    if not states:
        return mod
    every = [*names.inputs, *(state.name for state in states)]
    ports = PortNames(inputs=tuple(every), outputs=tuple(with_next_names(names.outputs, states)))
    return KeptStates().write(ports.write(mod))
