"""`<bundle>_links.*`: runs that pass their outputs, mapped, to inputs and states of other models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from codegen_c.c_text.text import C_TYPES, block, comment, filled, float_literal, literal, loop
from codegen_c.emit.banner import Origin, banner
from codegen_c.program.interface import Interface, Port
from codegen_c.program.mapping import Element, Mapping
from codegen_c.program.resample import Resample, index_type
from tvm_ext.core.platform import STATE_MEMORY

_LINE_LENGTH = 100


@dataclass(frozen=True, kw_only=True, eq=False)
class LinkedTensor:
    """An input or a state that a link writes.

    c_name: its name in the program; offset: of a state, bytes in its struct.
    """

    name: str
    c_name: str
    is_state: bool
    num_elements: int
    offset: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelLink:
    """An output of one model that becomes an input or a state of another model, or of the same model's next run.

    mapping: of an element; resample: between two resolutions, ahead of the mapping.
    is_static: True if only `<bundle>_links.c` calls the link's function. compiled_as: processor for whose code the
    function is compiled; empty for the platform's first. runs_elsewhere: True if other processors than the first run
    the source or parts of it. waits_for: processor that must be idle while the link copies, outside of rounds.
    """

    number: int
    bundle: str
    source: Interface
    port: Port
    target: Interface
    tensor: LinkedTensor
    mapping: Mapping
    resample: Resample | None = None
    is_static: bool = True
    compiled_as: str = ""
    runs_elsewhere: bool = False
    waits_for: str = ""

    @property
    def symbol(self) -> str:
        return f"{self.bundle}_link_{self.number}"

    @property
    def place(self) -> str:
        """The C expression of the target's first element."""
        model, name = self.target.model, self.tensor.c_name
        return f"{model}_{STATE_MEMORY}.{name}" if self.tensor.is_state else f"{model}_{name}()"

    @property
    def description(self) -> str:
        ends = f"{self.source.model}.{self.port.source} -> {self.target.model}.{self.tensor.name}"
        kind = f"resampling and {self.mapping.kind}" if self.resample else self.mapping.kind
        return comment(f"{ends}: {self.element_of_source} to {self.mapping.target}, by {kind}")

    @property
    def element_of_source(self) -> Element:
        """Type of the output's elements."""
        return Element(dtype=self.port.dtype, quantization=self.port.quantization)

    @property
    def constant_bytes(self) -> int:
        """Size of the link's tables."""
        return self.mapping.constant_bytes + (self.resample.constant_bytes if self.resample else 0)

    def reference(self, output: np.ndarray) -> np.ndarray:
        """Return the target's elements for an output of the source, bit for bit as the C computes them."""
        elements = np.ascontiguousarray(output).reshape(-1)
        if self.resample is not None:
            elements = self.resample.reference(elements, _zero_point(self.port))
        return self.mapping.reference(elements)


def run_symbol(bundle: str, model: str) -> str:
    """Return the name of the function that runs a model and passes its outputs on."""
    return f"{bundle}_run_{model}"


def emit_links(bundle: str, links: Sequence[ModelLink], origin: Origin) -> dict[str, str]:
    """Return the texts of `<bundle>_links.h` and `.c`, and a `.c` for each other kind of processor that copies.

    There are no files without links.
    """
    if not links:
        return {}
    sources = dict.fromkeys(link.source.model for link in links if not link.runs_elsewhere)
    guard = f"{bundle.upper()}_LINKS_H"
    declared: list[str] = []
    for model in sources:
        notes = [f"   {link.description}." for link in links if link.source.model == model]
        head = f"/* Calls {model}_run(); after a run that returns 0, it writes what the outputs are linked to:"
        declared.append("\n".join([head, *notes]) + f" */\n{model}_status {run_symbol(bundle, model)}(void);\n")
    header = [
        banner(origin, f"{bundle}: runs that pass their outputs to other models."),
        f"#ifndef {guard}\n#define {guard}\n",
        "".join(f'#include "{model}.h"\n' for model in sources),
        '#ifdef __cplusplus\nextern "C" {\n#endif\n',
        "/* A linked input keeps its value until the next write, whatever runs meanwhile; at first it is zero.\n"
        "   A linked state is overwritten: reset its model first. */\n",
        *declared,
        "#ifdef __cplusplus\n}\n#endif\n\n#endif\n",
    ]
    runs = [_run(bundle, model, [link for link in links if link.source.model == model]) for model in sources]
    texts = {f"{bundle}_links.h": "\n".join(header)}
    for processor in dict.fromkeys(["", *(link.compiled_as for link in links)]):
        own = [link for link in links if link.compiled_as == processor]
        if own or (runs and not processor):
            file = f"{bundle}_links{f'_{processor}' if processor else ''}.c"
            texts[file] = _source(bundle, links, own, [] if processor else runs, origin)
    return texts


def _source(
    bundle: str, links: Sequence[ModelLink], own: Sequence[ModelLink], runs: Sequence[str], origin: Origin
) -> str:
    """Return a file with the functions of some links, and of runs that call any of them."""
    includes = [f'#include "{bundle}_links.h"', "", "#include <math.h>", "#include <string.h>", ""]
    includes += [f'#include "{name}.h"' for name in dict.fromkeys(_models(links))]
    states = dict.fromkeys(link.target.model for link in own if link.tensor.is_state)
    includes += [f'#include "{model}_memory.h"' for model in states]
    includes += [f'#include "{bundle}_processors.h"'] if not all(link.is_static for link in links) else []
    title = f"{bundle}: runs that pass their outputs to other models."
    return "\n".join([banner(origin, title), *includes, "", *(_function(link) for link in own), *runs])


def _models(links: Sequence[ModelLink]) -> list[str]:
    return [model for link in links for model in (link.source.model, link.target.model)]


def _run(bundle: str, model: str, links: Sequence[ModelLink]) -> str:
    source = links[0].source
    body = [
        f"const {source.status_type} status = {source.run}();",
        f"if (status == {source.ok}) {{",
        block([line for link in links for line in copied(link)]),
        "}",
        "return status;",
    ]
    return f"{source.status_type} {run_symbol(bundle, model)}(void)\n{{\n{block(body)}\n}}\n"


def copied(link: ModelLink) -> list[str]:
    """Return the statements that copy outside of a round, once nothing may still read the target."""
    waits = [f"{link.bundle}_wait_for_{link.waits_for}();"] if link.waits_for else []
    return [*waits, f"{link.symbol}();"]


def _function(link: ModelLink) -> str:
    mapping = link.mapping
    kind, target = C_TYPES[link.port.dtype], C_TYPES[mapping.target.dtype]
    count = link.tensor.num_elements
    lines = [
        f"const {kind} *const source = {link.source.accessor(link.port)}();",
        f"{target} *const target = {link.place};",
    ]
    tables = _tables(link)
    if link.resample is not None:
        lines += _resampled(link, link.resample)
    elif mapping.kind == "copy":
        lines.append(f"(void)memcpy(target, source, {count}u * sizeof *target);")
    else:
        lines += loop("i", count, _element(link, "source[i]", "target[i]"))
    linkage = "static " if link.is_static else ""
    return f"{tables}/* {link.description}. */\n{linkage}void {link.symbol}(void)\n{{\n{block(lines)}\n}}\n"


def _tables(link: ModelLink) -> str:
    tables = [(f"{C_TYPES[link.mapping.target.dtype]} {link.symbol}_elements", link.mapping.table)]
    for axis in link.resample.axes if link.resample else ():
        tables.append(
            (f"{C_TYPES[index_type(axis)]} {link.symbol}_first_{axis.axis}", axis.first.astype(index_type(axis)))
        )
        tables.append((f"float {link.symbol}_parts_{axis.axis}", axis.parts))
    texts = [
        f"static const {name}[{values.size}] = {{\n{block(filled(literal(values), _LINE_LENGTH))}\n}};\n\n"
        for name, values in tables
        if values is not None
    ]
    return "".join(texts)


def _resampled(link: ModelLink, resample: Resample) -> list[str]:
    """Return the loops over the target's elements: over resampled axes, and those before, between, behind."""
    place: list[str] = []
    loops: list[tuple[str, int]] = []
    begin = 0
    for axis in resample.axes:
        name, stride = f"i{axis.axis}", prod(resample.shape[axis.axis + 1 :])
        if (before := prod(resample.shape[begin : axis.axis])) > 1:
            loops.append((f"before_{name}", before))
            place.append(f"before_{name} * {axis.size * stride}")
        loops.append((name, axis.first.size))
        place.append(f"{link.symbol}_first_{axis.axis}[{name}]{f' * {stride}' if stride > 1 else ''}")
        begin = axis.axis + 1
    if (behind := prod(resample.shape[begin:])) > 1:
        loops.append(("i", behind))
        place.append("i")
    value = "between" if resample.interpolates else "source[at]"
    lines = [f"const int32_t at = (int32_t)({' + '.join(place)});", *_between(link, resample)]
    lines += [*_element(link, value, "*to"), "++to;"]
    for name, count in reversed(loops):
        lines = loop(name, count, lines)
    return [f"{C_TYPES[link.mapping.target.dtype]} *to = target;", *lines]


def _between(link: ModelLink, resample: Resample) -> list[str]:
    """Return the lines that interpolate: along the last axis, then along the one before. Nothing for whole elements."""
    axes = [
        (f"{link.symbol}_parts_{axis.axis}[i{axis.axis}]", prod(resample.shape[axis.axis + 1 :]))
        for axis in resample.axes
        if axis.parts is not None
    ]
    if not axes:
        return []
    (part, stride) = axes[-1]
    if len(axes) == 1:
        return [*_pair(link, "", 0, stride), f"const float between = one + (other - one) * {part};"]
    (part_above, above) = axes[0]
    return [
        *_pair(link, "upper_", 0, stride),
        *_pair(link, "lower_", above, stride),
        f"const float upper = upper_one + (upper_other - upper_one) * {part};",
        f"const float lower = lower_one + (lower_other - lower_one) * {part};",
        f"const float between = upper + (lower - upper) * {part_above};",
    ]


def _pair(link: ModelLink, prefix: str, begin: int, stride: int) -> list[str]:
    """Return the lines that read two neighbors as float, without the zero point."""
    zero_point = _zero_point(link.port)
    lines: list[str] = []
    for name, place in (("one", begin), ("other", begin + stride)):
        read = f"source[at + {place}]" if place else "source[at]"
        value = read if link.port.dtype == "float32" else f"(float)((int32_t){read} - {_signed(zero_point)})"
        lines.append(f"const float {prefix}{name} = {value};")
    return lines


def _zero_point(port: Port) -> int:
    return port.quantization.zero_point if port.quantization else 0


def _element(link: ModelLink, source: str, target: str) -> list[str]:
    """Return the lines that map an element. source, target: C expressions."""
    mapping = link.mapping
    factor, offset = float_literal(mapping.factor), float_literal(mapping.offset)
    match mapping.kind:
        case "copy":
            return [f"{target} = {source};"]
        case "table":
            return [f"{target} = {link.symbol}_elements[(uint8_t){source}];"]
        case "dequantize":
            zero_point = _signed(mapping.zero_point)
            return [f"{target} = {factor} * (float)((int32_t){source} - {zero_point}) + {offset};"]
        case "scale":
            return [f"{target} = {factor} * {source} + {offset};"]
        case "quantize":
            least, most = ("-128", "127") if mapping.target.dtype == "int8" else ("0", "255")
            kind = C_TYPES[mapping.target.dtype]
            return [
                f"const float value = {factor} * {source} + {offset};",
                f"const float limited = value < {most}.0f ? value : {most}.0f; /* NaN becomes the least value */",
                f"{target} = ({kind})(value > {least}.0f ? (int32_t)rintf(limited) : {least});",
            ]


def _signed(number: int) -> str:
    return f"({number})" if number < 0 else str(number)
