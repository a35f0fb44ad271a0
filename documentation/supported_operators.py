"""The page of supported operators, from the converters of the importers and the registered kernels."""

from __future__ import annotations

import sys
from collections import defaultdict

import onnx

from benchmarks.measure.blocks import BLOCKS
from codegen_c.kernels.registry import COMMON, kernels, kernels_of
from codegen_c.targets.registry import instruction_sets
from documentation.markdown import page, table
from tvm_ext.frontends.onnx.control_flow import CONTROL_FLOW
from tvm_ext.frontends.onnx.element_types import dtype_of
from tvm_ext.frontends.onnx.operators import converters
from tvm_ext.frontends.onnx.refusals import CONTRIB_REASONS, refusal
from tvm_ext.frontends.onnx.sequences import SEQUENCE_OPERATORS
from tvm_ext.frontends.pytorch.import_program import CONVERTERS

PATH = "docs/reference/supported_operators.md"
_FAMILIES = {
    "floats": {"float16", "bfloat16", "float32", "float64"},
    "integers": {"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"},
    "bool": {"bool"},
}
_TFLITE = """\
Of the operators that TensorFlow Lite Micro or LiteRT computes, these were compiled and compared, each with random
scales and inputs. A dash: TensorFlow Lite Micro has none of that type. Their custom operators are in
[operators of your own](../operators.md)."""
_ONNX = """\
Names of the standard, with the element types of the first input that the standard allows and that can be compiled. *by
its definition*: the standard gives it as a graph of other operators, and that is compiled. What else a node may ask, an
attribute or a shape that depends on data, is refused by name when it is loaded;
[benchmarks/conformance/RESULTS.md](../../benchmarks/conformance/RESULTS.md) lists what of ONNX's own test suite is."""
_CONTRIB = """\
onnxruntime adds the domain `com.microsoft`, whose operators exporters, quantizers and its own optimizer write. The
table has all that its CPU provider computes. Attention becomes products and a softmax, in which kernels and passes
know heads."""
_TORCH = """\
Operators of ATen after `run_decompositions()`, by TVM's importer and by ours. Element types are those of PyTorch's
program."""
_KERNELS = """\
What has no kernel here goes through TVM's own lowering to plain C. Of those that take an operator, the one with the
fewest modelled instructions is chosen; `steps` of [the report](report_keys.md) say which, and why others were not."""


def supported_operators_page() -> str:
    block = f"<!-- begin: tflite_operators -->\n{BLOCKS['tflite_operators']()}<!-- end: tflite_operators -->"
    parts = ["## TensorFlow Lite", _TFLITE, block, "## ONNX", _ONNX, _onnx_table(), _contrib()]
    parts += ["## PyTorch", _TORCH, _names(_torch_names()), "## Kernels", _KERNELS, _kernel_table()]
    return page("Supported operators", *parts)


def _onnx_table() -> str:
    newest = {schema.name: schema for schema in onnx.defs.get_all_schemas() if schema.domain == ""}
    alike: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for name, schema in sorted(newest.items()):
        way = _way(schema)
        alike[way, _types(schema) if way != "refused" else _reason(name)].append(name)
    order = {"compiled": 0, "by its definition": 1, "refused": 2}
    rows = [
        (", ".join(f"`{name}`" for name in names), way, types)
        for (way, types), names in sorted(
            alike.items(), key=lambda item: (order[item[0][0]], -len(item[1]), item[0][1])
        )
    ]
    return table(("operators", "", "element types, or why not"), rows)


def _reason(name: str) -> str:
    return refusal(onnx.NodeProto(op_type=name)) or "there is neither a converter for it nor a definition"


def _way(schema: onnx.defs.OpSchema) -> str:
    if refusal(onnx.NodeProto(op_type=schema.name)):
        return "refused"
    if ("", schema.name) in converters() or schema.name in {*CONTROL_FLOW, *SEQUENCE_OPERATORS}:
        return "compiled"
    return "by its definition" if schema.has_function or schema.has_context_dependent_function else "refused"


def _types(schema: onnx.defs.OpSchema) -> str:
    """Return the supported element types; a family whose types are all supported stands for its types."""
    if not schema.inputs:
        return ""
    spelled = {text.removeprefix("tensor(").removesuffix(")") for text in schema.inputs[0].types}
    names = {name.replace("float", "float32") if name == "float" else name for name in spelled}
    names = {"float64" if name == "double" else name for name in names}
    known = {dtype_of(number) for number in onnx.TensorProto.DataType.values()}
    taken = {name for name in names if name in known}
    found: list[str] = []
    for family, members in _FAMILIES.items():
        found += [family] if members <= taken else sorted(members & taken)
    return ", ".join(found)


def _contrib() -> str:
    """Return the paragraph and the table of the operators that onnxruntime adds to the standard."""
    taken = {name for domain, name in converters() if domain == "com.microsoft"}
    known = _contrib_operators()
    reasons = defaultdict[str, list[str]](list)
    for name in known - taken:
        reasons[CONTRIB_REASONS.get(name, "there is neither a converter for it nor a definition")].append(name)
    rows = [(_names(taken & known), "compiled", ""), (_names(taken - known), "compiled", "not one of onnxruntime's")]
    rows += [(_names(names), "refused", _first_clause(why)) for why, names in sorted(reasons.items())]
    return "\n\n".join(
        [
            _CONTRIB,
            table(("operators", "", "why not"), [(names.rstrip("."), *rest) for names, *rest in rows if names != "."]),
        ]
    )


def _contrib_operators() -> set[str]:
    """Return the operators of com.microsoft that onnxruntime computes on CPUs."""
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_opkernel_def

    kernels = [kernel for kernel in get_all_opkernel_def() if kernel.domain == "com.microsoft"]
    return {kernel.op_name for kernel in kernels if kernel.provider == "CPUExecutionProvider"}


def _first_clause(reason: str) -> str:
    return reason.split(";")[0]


def _torch_names() -> set[str]:
    """Return the supported ATen operators. Raises ImportError without PyTorch, which the importer's table needs."""
    import torch  # noqa: F401
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

    return {name for name in (*ExportedProgramImporter().convert_map, *CONVERTERS) if isinstance(name, str)}


def _names(names: set[str] | list[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names)) + "."


def _kernel_table() -> str:
    packages = {f"{own.package}.kernels": own.title for own in instruction_sets()}
    places = {f"{COMMON}.": "any", **{f"{package}.": title for package, title in packages.items()}}
    rows: list[tuple[str, str, str]] = []
    for kernel in kernels():
        module = _module_of(kernel.name, tuple(places))
        processor = next(title for place, title in places.items() if module.startswith(place))
        rows.append((f"`{kernel.name}`", kernel.title, processor))
    return table(("kernel", "computes", "processor"), rows)


def _module_of(kernel: str, places: tuple[str, ...]) -> str:
    """Return the name of the module that defines a kernel. The registry has already imported the module."""
    modules = [(name, module) for name, module in sys.modules.items() if name.startswith(places)]
    return next(name for name, module in modules if kernel in [one.name for one in kernels_of(module)])
