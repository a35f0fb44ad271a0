"""Firmware that runs several candidates for layers, so that their instructions can be counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import numpy as np

from codegen_c.arena.plan import plan_memory
from codegen_c.backend.build import Compiled
from codegen_c.emit.banner import Origin
from codegen_c.emit.firmware import emit_layers_firmware
from codegen_c.kernels.registry import KernelCandidate
from codegen_c.operators.kinds import TensorType
from codegen_c.program.interface import Interface, Port
from codegen_c.program.program import Program
from codegen_c.program.steps import KernelCall
from codegen_c.program.tensors import Constant, Tensor
from tvm_ext.core.errors import VerificationFailed
from tvm_ext.core.options import CompileFor
from tvm_ext.core.platform import Platform
from tvm_ext.core.toolchain import compile_objects
from tvm_ext.execution.qemu_start import link_firmware
from tvm_ext.profiling.device_profile import counting_flags
from tvm_ext.profiling.layer_names import PackageSteps, steps_of_package
from tvm_ext.tuning.layers import TunedLayer, method_text
from tvm_ext.verification.verify import difference, is_float, tolerance_of

MODEL = "layers"
Array = np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasuredMethod:
    """A candidate for a layer that is measured. name: of its step in the firmware."""

    name: str
    layer: TunedLayer
    candidate: KernelCandidate


def renamed(method: MeasuredMethod) -> MeasuredMethod:
    """Return the candidate under a neutral name, so that equal candidates have equal C."""
    return replace(method, name="way")


def samples_of(layer: TunedLayer) -> list[Array]:
    """Return reproducible random inputs of a layer: normally distributed floats, integers over their whole range."""
    generator = np.random.default_rng(0)
    found: list[Array] = []
    for kind in layer.operator.inputs:
        dtype = np.dtype(kind.dtype)
        if dtype.kind == "f":
            found.append(generator.standard_normal(kind.shape).astype(dtype))
        else:
            limits = np.iinfo(dtype)
            found.append(generator.integers(limits.min, limits.max, kind.shape, dtype, endpoint=True))
    return found


def results_of(layer: TunedLayer, samples: Sequence[Array]) -> tuple[Array, ...]:
    """Return the results of the numpy reference of the first candidate, which was chosen by predictions."""
    first = layer.methods[0]
    seen = [array.reshape(kind.shape) for array, kind in zip(samples, first.form.inputs, strict=True)]
    results = zip(first.made.reference(seen), first.form.outputs, strict=True)
    return tuple(np.ascontiguousarray(array).astype(kind.dtype, copy=False) for array, kind in results)


def compiled_methods(methods: Sequence[MeasuredMethod], platform: Platform) -> Compiled:
    """Return a program of all candidates, planned without shared bytes, so that no candidate affects another."""
    program = program_of(methods, platform)
    program, plan = plan_memory(program, activations=platform.activations, kept=program.tensors)
    interface = Interface(
        model=MODEL, io="arena", inputs=_ports(program, program.inputs), outputs=_ports(program, program.outputs)
    )
    origin = Origin(
        generator=f"tvm_ext {version('tvm-ext')}", model="layers that are measured", sha256="", platform=platform.name
    )
    return Compiled(program=program, plan=plan, interface=interface, origin=origin, platform=platform)


def program_of(methods: Sequence[MeasuredMethod], platform: Platform) -> Program:
    """Return a program with a step for each candidate, in order."""
    layers = list(dict.fromkeys(method.layer for method in methods))
    tensors: dict[str, Tensor] = {}
    inputs: dict[str, list[str]] = {}

    def tensor(name: str, kind: TensorType, role: Literal["input", "output"]) -> str:
        tensors[name] = Tensor(
            name=name, source=name, shape=kind.shape, dtype=kind.dtype, memory=platform.activations, role=role
        )
        return name

    for number, layer in enumerate(layers):
        kinds = enumerate(layer.operator.inputs)
        inputs[layer.digest] = [tensor(f"x{number}_{place}", kind, "input") for place, kind in kinds]
    constants: dict[str, Constant] = {}
    steps: list[KernelCall] = []
    for method in methods:
        form, made = method.candidate.form, method.candidate.made
        own = {
            f"{method.name}_c{place}": np.ascontiguousarray(array) for place, (_, array) in enumerate(made.constants)
        }
        constants |= {name: Constant(name=name, data=data, memory=platform.weights) for name, data in own.items()}
        kinds = enumerate(form.outputs)
        steps.append(
            KernelCall(
                name=method.name, implementation=made, inputs=tuple(inputs[method.layer.digest]),
                outputs=tuple(tensor(f"{method.name}_y{place}", kind, "output") for place, kind in kinds),
                input_shapes=tuple(kind.shape for kind in form.inputs), constants=tuple(own),
                source_nodes=(method.name,), processor=platform.processor.name,
            )
        )  # fmt: skip
    return Program(
        name=MODEL, inputs=tuple(name for names in inputs.values() for name in names),
        outputs=tuple(name for step in steps for name in step.outputs), tensors=tensors, constants=constants,
        steps=tuple(steps), state_home=platform.states,
    )  # fmt: skip


def _ports(program: Program, names: Sequence[str]) -> tuple[Port, ...]:
    tensors = [program.tensors[name] for name in names]
    return tuple(Port(name=t.name, source=t.name, shape=t.shape, dtype=t.dtype) for t in tensors)


_TRACE = "trace.json"


@dataclass(frozen=True, kw_only=True, eq=False)
class LayersFirmware:
    """An ELF file that runs candidates one after the other.

    run: name of the measured function. inputs: bytes of its inputs. expected: for each candidate, the reference results
    of its layer. tolerances: for each candidate, the allowed error of floats relative to the largest result.
    """

    elf: Path
    steps: PackageSteps
    run: str
    inputs: bytes
    expected: tuple[tuple[Array, ...], ...] = ()
    tolerances: tuple[float, ...] = ()


def build_layers(
    methods: Sequence[MeasuredMethod], platform: Platform, optimize: CompileFor, folder: Path, *, hooks: bool = False
) -> LayersFirmware:
    """Build firmware of candidates in a folder. hooks: True if the firmware itself counts cycles and prints them.

    Raises MissingTool, BuildFailed, DoesNotFit.
    """
    compiled = compiled_methods(methods, platform)
    flags: list[str] = []
    if hooks:
        compiled = replace(compiled, interface=replace(compiled.interface, has_hooks=True))
        flags = counting_flags(compiled.interface.model, folder)
    elf, steps = linked(compiled, platform, optimize, folder, flags)
    layers = list(dict.fromkeys(method.layer for method in methods))
    samples = {layer: samples_of(layer) for layer in layers}
    results = {layer: results_of(layer, samples[layer]) for layer in layers}
    return LayersFirmware(
        elf=elf, steps=steps, run=compiled.interface.run,
        inputs=b"".join(array.tobytes() for layer in layers for array in samples[layer]),
        expected=tuple(results[method.layer] for method in methods),
        tolerances=tuple(tolerance_of(program_of([method], platform)) for method in methods),
    )  # fmt: skip


def linked(
    compiled: Compiled, platform: Platform, optimize: CompileFor, folder: Path, flags: Sequence[str] = ()
) -> tuple[Path, PackageSteps]:
    """Build an ELF file that runs a program once on inputs from a file. Return it with the program's steps.

    Raises MissingTool, BuildFailed, DoesNotFit.
    """
    texts = {**compiled.sources(), **emit_layers_firmware(compiled.interface, platform), _TRACE: compiled.trace([])}
    for name, text in texts.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    sources = [*sorted(folder.glob("*.c")), *sorted((folder / "board").glob("*.c"))]
    toolchain = platform.toolchain_of(platform.processor)
    objects = compile_objects(
        sources, folder / "build", toolchain, optimize=optimize, flags=flags, include_dirs=[folder, folder / "board"]
    )
    elf = link_firmware(objects, folder / "layers.elf", platform, folder / "board")
    return elf, steps_of_package(folder / _TRACE)


def check_outputs(methods: Sequence[MeasuredMethod], firmware: LayersFirmware, data: bytes) -> None:
    """Compare the outputs of candidates with the numpy reference and with each other. Raises VerificationFailed.

    Integers have to equal the reference, floats within the tolerance. All candidates of a layer have to give the same
    bits as its first candidate.
    """
    offset, first_of = 0, dict[TunedLayer, tuple[bytes, KernelCandidate]]()
    for method, expected, tolerance in zip(methods, firmware.expected, firmware.tolerances, strict=True):
        begin = offset
        for wanted in expected:
            got = np.frombuffer(data, wanted.dtype, wanted.size, offset).reshape(wanted.shape)
            offset += wanted.nbytes
            if wrong := _wrong(got, wanted, 0.0 if method.candidate.made.exact else tolerance):
                raise _defect(method, f"its result differs from the operator's reference {wrong}")
        bits, first = first_of.setdefault(method.layer, (data[begin:offset], method.candidate))
        if bits != data[begin:offset]:
            raise _defect(method, f"it gives other bits than {_told(first)}")


def _wrong(got: Array, wanted: Array, tolerance: float) -> str:
    """Describe the difference of a result from the reference; empty if it is within the tolerance."""
    if not is_float(wanted) or not tolerance:
        count = int(np.count_nonzero(got != wanted))
        return f"in {count} of {wanted.size} elements" if count else ""
    error = difference(got, wanted)[1]
    return f"by {error:g} of its largest element" if error > tolerance else ""


def _defect(method: MeasuredMethod, problem: str) -> VerificationFailed:
    return VerificationFailed(
        f"tune: {method.layer.steps[0]} with kernel {_told(method.candidate)}: {problem}. This is a defect of tvm-ext: "
        "please report it with the model file. Without tune, the model can be compiled, and is verified as a whole."
    )


def _told(candidate: KernelCandidate) -> str:
    return method_text(candidate.method)
