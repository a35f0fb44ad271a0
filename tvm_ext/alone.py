"""A model on one of several processors alone, built and run beside its package for comparison."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from codegen_c.backend.build import Compiled
from codegen_c.program.share_steps import share_steps
from tvm_ext.artifacts import compile_package, write_texts
from tvm_ext.core.errors import DoesNotFit
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.execution.board import board_seconds, run_qemu
from tvm_ext.pipeline import compile_module
from tvm_ext.selftest import selftest_of
from tvm_ext.subject import Subject


def instructions_alone(subject: Subject, options: BuildOptions) -> int | None:
    """Executed instructions of a run on the processor that is predicted to be the fastest one alone.

    Of a processor that another one starts and calls, its signals are among them. None where the model does not fit it.
    """
    platform, placement = subject.compiled.platform, subject.compiled.placement
    name = placement["single_processor"]["name"] if placement else platform.processor.name
    unquantized = replace(  # the module is quantized by now
        options, quantize="none", io_type="int8", activations="int8", verify=()
    )
    try:
        compiled = compiled_alone(subject, platform, unquantized, name)
    except DoesNotFit:
        return None
    with TemporaryDirectory(prefix="tvm_ext_") as folder:
        write_texts(Path(folder), compiled, options, selftest_of(subject).stored)
        artifacts = compile_package(Path(folder), compiled, options, Path(folder) / "build")
        assert artifacts.elf is not None, "the board has run the model before"
        ran = run_qemu(
            artifacts.elf, platform, compiled.interface, subject.samples[:1],
            time_limit_s=board_seconds(compiled.modelled_instructions, 1), parallel=compiled.parallel,
        )  # fmt: skip
    return ran.instructions


def compiled_alone(subject: Subject, platform: Platform, options: BuildOptions, name: str) -> Compiled:
    """The model with all its steps on the processor of that name."""
    processor, first = platform.processor_named(name), platform.processor
    others = [other for other in platform.processors if other != processor]
    chosen = replace(options, processors=(name,), name=subject.compiled.interface.model)
    compiled = compile_module(subject.mod, replace(platform, processors=(processor, *others)), chosen)
    if processor == first:
        return compiled
    lists = {first.name: [], name: [step.name for step in compiled.program.steps]}
    parallel = share_steps(compiled.program, lists, compiled.plan.places)
    interface = replace(compiled.interface, servers=(name,))
    return replace(compiled, program=parallel.program, parallel=parallel, platform=platform, interface=interface)
