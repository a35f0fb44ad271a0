"""Import a screened program as a Relax function, with its mutated buffers as states."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax

from relay_passes.dataflow import bindings, is_dataflow, outputs, rebuild, substitute, with_span
from tvm_ext.core.errors import BadModel, UnsupportedModel
from tvm_ext.core.limits import Limits
from tvm_ext.core.memory_exhausted import check_memory
from tvm_ext.frontends.pytorch import indexing, operators, orders, pools, recurrent, resizes, spectra
from tvm_ext.frontends.pytorch.refusals import explained, refuse_nodes
from tvm_ext.frontends.pytorch.screen_archive import declaration_refusals, refused_operators, screened_archive
from tvm_ext.frontends.quiet import quiet
from tvm_ext.frontends.refusals import Refused


@dataclass(frozen=True, kw_only=True, eq=False)
class ImportedProgram:
    """A module with a function `main` and bound weights, and the names of its results.

    buffers: that the program changes. They are also parameters, and their next values are results.
    """

    mod: tvm.IRModule
    buffers: tuple[MutatedBuffer, ...]
    output_names: tuple[str, ...]


def open_program(path: Path, data: memoryview, limits: Limits) -> Any:
    """Return the program in a file of torch.export.save. Raises BadModel, UnsupportedModel.

    torch is imported last, after all checks without it.
    """
    archive = screened_archive(path, data, limits)
    try:
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        check_memory(error)
        raise BadModel(f'{path}: reading .pt2 files needs PyTorch: pip install "tvm-ext[torch]".') from None
    operators.register_operators()
    refused = declaration_refusals(torch, archive.targets)
    if refused:
        raise refused_operators(path, refused)
    logger = logging.getLogger("torch.export")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # the exception says what went wrong too
    try:
        with quiet():
            from torch.export.pt2_archive._package import load_pt2  # pyright: ignore[reportMissingImports]

            return load_pt2(archive.file).exported_programs["model"]
    except Exception as error:  # a damaged archive can make torch raise anything
        check_memory(error)
        raise BadModel(f"{path}: torch {torch.__version__} cannot load it: {_last_line(error)}") from None
    finally:
        logger.setLevel(level)


def import_program(path: Path, program: Any) -> ImportedProgram:
    """Import a torch.export.ExportedProgram under its own names.

    Variables are named after the nodes of torch's graph of ATen operators, outputs as in the program. Spans name the
    module of an operator: `stem.0/convolution`. Raises UnsupportedModel that lists every operator without a converter
    in TVM.
    """
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

    class NamingImporter(ExportedProgramImporter):
        """Records the variable of each node, and explains failures of converters."""

        labels: Mapping[str, tuple[str, str]]

        def _check_unsupported_func_type(self, nodes: Any) -> None:
            """Check nothing here: `refuse_nodes` did."""

        def _translate_fx_graph(self, *args: Any, **kwargs: Any) -> Any:
            results = super()._translate_fx_graph(*args, **kwargs)
            made = [(node, value) for node, value in self.env.items() if isinstance(value, relax.Var)]
            self.labels = {value.name: (node.name, _place(node)) for node, value in made}
            return results

    with quiet():
        decomposed, buffers = with_buffers_opened(decomposed_program(path, program))
        importer = NamingImporter()
        refuse_nodes(path, decomposed.graph.nodes, {*importer.convert_map, *CONVERTERS})
        importer.convert_map = {name: explained(convert) for name, convert in importer.convert_map.items()}
        own = {name: explained(convert) for name, convert in CONVERTERS.items()}
        try:
            mod = importer.from_exported_program(decomposed, False, False, False, own)
        except UnsupportedModel:
            raise
        except Refused as refused:
            raise UnsupportedModel(f"{path}: cannot be compiled because an operator is refused: {refused}.") from None
        except Exception as error:  # what is outside of converters may raise anything too
            check_memory(error)
            kinds = sorted({spec.kind.name.lower() for spec in decomposed.graph_signature.input_specs})
            raise UnsupportedModel(
                f"{path}: cannot be compiled: the form of the program is not known; its inputs are of the kinds "
                f"{', '.join(kinds)} ({type(error).__name__})."
            ) from None
    names = [str(name) for name in program.graph_signature.user_outputs]
    names = [*(f"{buffer.name}.next" for buffer in sorted(buffers, key=lambda buffer: buffer.result)), *names]
    _check_outputs(path, mod, decomposed, names)
    return ImportedProgram(mod=_named(mod, importer.labels, names), buffers=buffers, output_names=tuple(names))


def decomposed_program(path: Path, program: Any) -> Any:
    """Return the program in ATen's core operators, which torch derives by running it on tensors without content.

    Names of nodes depend on what is decomposed: they are those of the module's variables only in this form.
    """
    import torch  # pyright: ignore[reportMissingImports]

    try:
        table = torch.export.default_decompositions()
        # Decomposed, recurrent layers would become operators for each step, and resizes would look for each element.
        resized = [overload for overload in table if overload.__name__ in resizes.KEPT]
        for overload in (*recurrent.layers_to_keep(program), *resized):
            table.pop(overload, None)
        return program.run_decompositions(table)
    except Exception as error:  # a damaged archive can make torch raise anything
        check_memory(error)
        raise BadModel(f"{path}: torch cannot decompose its operators: {_last_line(error)}") from None


def _last_line(error: Exception) -> str:
    """Return the end of an exception's text, where torch's tracebacks say what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or [type(error).__name__])[-1][:200]


def _check_outputs(path: Path, mod: tvm.IRModule, program: Any, names: Sequence[str]) -> None:
    """Raise UnsupportedModel where TVM's importer gives an output another type than PyTorch does."""
    if not is_dataflow(mod["main"]):
        return
    (last,) = (node for node in program.graph.nodes if node.op == "output")
    kept = [node.meta.get("val") for node in last.args[0]][-len(names) :]  # values written to buffers come first
    for name, ours, value in zip(names, _results(mod["main"]), kept, strict=False):
        wanted = str(value.dtype).removeprefix("torch.") if hasattr(value, "dtype") else None
        if wanted is not None and isinstance(ours.ty, relax.TensorType) and str(ours.ty.dtype) != wanted:
            raise UnsupportedModel(
                f"{path}: output {name!r} is {wanted}, and TVM's importer computes it in {ours.ty.dtype}. Export the "
                f"model in {ours.ty.dtype}."
            )


def _place(node: Any) -> str:
    """Return the module that contains an operator, and the operator: `stem.0/convolution`."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    module = str(stack[-1][0]) if stack else ""
    return f"{module}/{node.name}" if module else node.name


def _named(mod: tvm.IRModule, made: Mapping[str, tuple[str, str]], output_names: Sequence[str]) -> tvm.IRModule:
    """Return the module with variables named after torch's nodes, and `node.1`, `node.2` for inner values of a node.

    made: names of the node and of its module, by the name of the variable that the node became.
    """
    func = mod["main"]
    if not is_dataflow(func):
        return mod
    sequence = bindings(func)
    values = {binding.var: binding.value for binding in sequence}
    names: dict[relax.Var, str] = {}
    labels: dict[relax.Var, str] = {}
    pending: list[relax.Var] = []
    for binding in sequence:
        pending.append(binding.var)
        if binding.var.name not in made:
            continue
        node, place = made[binding.var.name]
        names |= {var: f"{node}.{index}" for index, var in enumerate(pending[:-1], 1)} | {binding.var: node}
        labels |= dict.fromkeys(pending, place)
        pending = []
    params = {param.name for param in func.params}
    for result, name in zip(_results(func), output_names, strict=False):
        computed = _computed(result, values)
        if computed in names and name not in {*names.values(), *params}:
            names[computed] = name
    renamed: dict[relax.Var, relax.Var] = {}
    rewritten = []
    for binding in sequence:
        value, label = substitute(binding.value, renamed), labels.get(binding.var)
        if label is not None and isinstance(value, relax.Call):
            value = with_span(value, tvm.ir.Span(tvm.ir.SourceName(label), 0, 0, 0, 0))
        renamed[binding.var] = relax.DataflowVar(names.get(binding.var, binding.var.name), binding.var.ty)
        rewritten.append(relax.VarBinding(renamed[binding.var], value))
    results = [substitute(result, renamed) for result in outputs(func)]
    changed = mod.clone()
    changed.update_func(changed.get_global_var("main"), rebuild(func, rewritten, results))
    return changed


def _computed(result: relax.Expr, values: Mapping[relax.Var, relax.Expr]) -> relax.Expr:
    """Return the variable that computes a result, behind aliases and tuples of the import."""
    while (value := values.get(result)) is not None:
        if isinstance(value, relax.TupleGetItem) and isinstance(whole := values.get(value.tuple_value), relax.Tuple):
            result = whole.fields[value.index]
        elif isinstance(value, relax.Var):
            result = value
        else:
            break
    return result


def _results(func: relax.Function) -> list[relax.Expr]:
    """Return the results of the function, with a tuple that is bound to a variable opened."""
    values = {binding.var: binding.value for binding in bindings(func)}
    (first, *rest) = outputs(func)
    bound = values.get(first)
    return list(bound.fields) if not rest and isinstance(bound, relax.Tuple) else [first, *rest]


@dataclass(frozen=True, kw_only=True, eq=False)
class MutatedBuffer:
    """A buffer that a run changes.

    name: of the buffer in its module.
    placeholder: of the graph, which is now an input.
    result: index of its next value among the graph's results.
    """

    name: str
    placeholder: str
    result: int
    initial: np.ndarray


def with_buffers_opened(program: Any) -> tuple[Any, tuple[MutatedBuffer, ...]]:
    """Return a decomposed ExportedProgram whose changed buffers are inputs and outputs, and these buffers."""
    from torch.export.graph_signature import (  # pyright: ignore[reportMissingImports]
        ExportGraphSignature,
        InputKind,
        InputSpec,
        OutputKind,
        OutputSpec,
    )

    signature = program.graph_signature
    places = {
        spec.target: place
        for place, spec in enumerate(signature.output_specs)
        if spec.kind == OutputKind.BUFFER_MUTATION
    }
    if not places:
        return program, ()
    values = {**dict(program.named_buffers()), **program.constants}
    buffers = tuple(
        MutatedBuffer(
            name=spec.target, placeholder=spec.arg.name, result=places[spec.target],
            initial=values[spec.target].detach().cpu().numpy().copy(),
        )
        for spec in signature.input_specs
        if spec.target in places
    )  # fmt: skip
    inputs = [
        InputSpec(kind=InputKind.USER_INPUT, arg=spec.arg, target=None) if spec.target in places else spec
        for spec in signature.input_specs
    ]
    outputs = [
        OutputSpec(kind=OutputKind.USER_OUTPUT, arg=spec.arg, target=None)
        if spec.kind == OutputKind.BUFFER_MUTATION
        else spec
        for spec in signature.output_specs
    ]
    program._graph_signature = ExportGraphSignature(input_specs=inputs, output_specs=outputs)
    return program, buffers


CONVERTERS = {
    **indexing.CONVERTERS, **operators.CONVERTERS, **orders.CONVERTERS, **pools.CONVERTERS, **recurrent.CONVERTERS,
    **resizes.CONVERTERS, **spectra.CONVERTERS,
}  # fmt: skip
