"""Read the MLIR text of a TOSA graph that is not trusted, as the values that a .tosa file gives.

The reader takes a module with one function of operators of the tosa dialect, in the pretty and in the generic form.
Tensors have the names that `tosa-opt --tosa-serialize` gives them.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tvm_ext.core.errors import BadModel, UnsupportedModel
from tvm_ext.core.files.read_file import mapped_file
from tvm_ext.core.limits import Limits
from tvm_ext.frontends.tosa.mlir_constants import Literal, ValueType, constant_numbers, integers_of, values_of
from tvm_ext.frontends.tosa.mlir_scanner import Scanner
from tvm_ext.frontends.tosa.read_file import TosaGraph, TosaNode, TosaTensor
from tvm_ext.frontends.tosa.schema import ATTRIBUTES, BITS, CHOICES, OPERATORS, STORED

_MAX_FILE_BYTES = (1 << 31) - 1
_BYTECODE = b"ML\xefR"

_TYPES = {
    "i1": "bool", "i4": "int4", "i8": "int8", "i16": "int16", "i32": "int32", "i48": "int48", "i64": "int64",
    "f32": "float32", "f16": "float16", "bf16": "bfloat16", "f8E4M3FN": "fp8e4m3", "f8E5M2": "fp8e5m2",
    "index": "shape",
}  # fmt: skip
"""Element types by their names in MLIR."""

_TENSOR = re.compile(rb"tensor<((?:(?:\d{1,18}|\?)x){0,4096}+)([A-Za-z]\w*+)>")
_SHAPE = re.compile(rb"!tosa\.shape<(\d{1,9})>")
_INTS = re.compile(rb"array<i(?:8|32|64)(?:: ?([-\d, ]*+))?>")
_CHOICE = re.compile(rb'(?:#tosa(?:\.\w++)?<(?:\w++ )?)?"?([A-Z_]++)"?>?')
_WORD = re.compile(rb"[A-Za-z_][\w$.]*+")
_UNREAD = ("CUSTOM", "FFT2D", "RFFT2D")
"""Operators that are refused by their names, so that their attributes do not matter."""

_DEFAULTS: Mapping[str, object] = {"nan": "PROPAGATE", "bool": False}
"""Values of attributes that the printer leaves out, by their kind."""


@dataclass(frozen=True, kw_only=True)
class _Statement:
    """An operator of the function, with values by their names in the text."""

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, object]


def read_tosa_text(path: Path, limits: Limits) -> TosaGraph:
    """Read and check a text. Raises BadModel, and UnsupportedModel for text of other dialects and large files."""
    data = mapped_file(path, kind="an .mlir file", most_bytes=_MAX_FILE_BYTES)
    if data[:4] == _BYTECODE:
        raise UnsupportedModel(f"{path}: is MLIR bytecode; write the module as text, which tosa-opt does by default.")
    return _Reader(path, data, limits).graph()


class _Reader:
    """Reads one text and adds up what its limits count."""

    def __init__(self, path: Path, data: memoryview, limits: Limits) -> None:
        self._path, self._data, self._limits = path, data, limits
        self._text = Scanner(path, data)
        self._types: dict[str, ValueType] = {}
        self._constants: dict[str, Literal] = {}
        self._statements: list[_Statement] = []
        self._inputs: list[tuple[str, str]] = []
        self._outputs: list[str] = []
        self._output_names: list[str] = []
        self._resources: dict[bytes, bytes] = {}
        self._weights_bytes, self._text_bytes, self._has_function = 0, 0, False

    def graph(self) -> TosaGraph:
        while self._text.token:
            self._top_level()
        if not self._has_function:
            raise BadModel(f"{self._path}: has no function.")
        names = self._names()
        tensors = {}
        for value, kind in self._types.items():
            literal, name = self._constants.get(value), names[value]
            data = None if literal is None else self._constant_data(literal)
            tensors[name] = TosaTensor(name=name, type_name=kind.type_name, shape=kind.shape, data=data)
        nodes = tuple(
            TosaNode(
                operator=one.operator, label=names[one.outputs[0]] if one.outputs else one.operator,
                inputs=tuple(names[value] for value in one.inputs),
                outputs=tuple(names[value] for value in one.outputs), attributes=one.attributes,
            )
            for one in self._statements
        )  # fmt: skip
        return TosaGraph(
            tensors=tensors, nodes=nodes, inputs=tuple(names[value] for value, _ in self._inputs),
            outputs=tuple(names[value] for value in self._outputs), sha256=hashlib.sha256(self._data).hexdigest(),
            weights_bytes=self._weights_bytes,
        )  # fmt: skip

    def _names(self) -> dict[str, str]:
        """Return the name of the tensor of each value: that of its attribute, or as tosa-opt names it in a file."""
        names: dict[str, str] = {}
        for place, (value, given) in enumerate(self._inputs):
            names[value] = given or f"TosaInput_{place}"
        for place, (value, given) in enumerate(zip(self._outputs, self._output_names, strict=True)):
            if value not in self._constants:
                names.setdefault(value, given or f"TosaOutput_{place}")
        used = set(names.values())
        if len(used) < len(names):
            raise BadModel(f"{self._path}: two inputs or outputs have the same tosa.tensor_name.")
        for value in self._types:
            if value not in names:
                name = f"layer_{value[1:]}" if value[1:2].isdigit() else value[1:]
                while name in used:
                    name += "_"
                names[value] = name
                used.add(name)
        return names

    def _top_level(self) -> None:
        """Read what a module contains: its own brackets, a function, an alias of a location, or resources."""
        text = self._text
        if text.accept(b"module"):
            if text.token[:1] == b"@":
                text.advance()
            self._module_attributes()
            text.expect(b"{")
            self._module(b"}")
        elif text.accept(b'"builtin.module"'):
            text.expect(b"(", b")")
            self._properties({})
            text.expect(b"(", b"{")
            self._module(b"}")
            text.expect(b")")
            self._dictionary({})
            self._void_type()
        elif text.token[:1] in (b"#", b"!"):
            text.advance()
            text.expect(b"=")
            text.skip_group()
        elif text.accept(b"{-#"):
            self._read_resources()
        else:
            self._function()
        self._location()

    def _module(self, end: bytes) -> None:
        while not self._text.accept(end):
            self._function()

    def _module_attributes(self) -> None:
        if self._text.accept(b"attributes"):
            self._dictionary({})

    def _function(self) -> None:
        text = self._text
        if text.token not in (b"func.func", b'"func.func"'):
            raise UnsupportedModel(
                f"{text.where()}: a module of one function of the tosa dialect can be compiled, and the text has "
                f"{text.shown()}."
            )
        if self._has_function:
            raise UnsupportedModel(f"{text.where()}: a second function; a module with one function can be compiled.")
        self._has_function = True
        if text.advance() == b"func.func":
            self._pretty_function()
        else:
            self._generic_function()
        self._location()

    def _pretty_function(self) -> None:
        text = self._text
        if text.token in (b"private", b"public", b"nested"):
            text.advance()
        if text.token[:1] != b"@":
            raise BadModel(f"{text.where()}: the name of the function is expected, and the text has {text.shown()}.")
        text.advance()
        self._arguments(b"(", b")", [])
        results = []
        if text.accept(b"->"):
            results = self._types_in_brackets(self._output_names)
        self._module_attributes()
        text.expect(b"{")
        self._body(results)

    def _generic_function(self) -> None:
        text = self._text
        arguments: list[str] = []
        results: list[ValueType] = []

        def function_type() -> None:
            self._types_in_brackets()
            text.expect(b"->")
            results.extend(self._types_in_brackets())

        text.expect(b"(", b")")
        readers = {
            "function_type": function_type, "arg_attrs": lambda: arguments.extend(self._port_names()),
            "res_attrs": lambda: self._output_names.extend(self._port_names()),
        }  # fmt: skip
        self._properties(readers)
        text.expect(b"(", b"{")
        if text.token[:1] == b"^":
            text.advance()
            self._arguments(b"(", b")", arguments)
            text.expect(b":")
        self._output_names.extend([""] * (len(results) - len(self._output_names)))
        self._body(results)
        text.expect(b")")
        self._dictionary({})
        self._void_type()

    def _arguments(self, begin: bytes, end: bytes, names: Sequence[str]) -> None:
        text = self._text
        text.expect(begin)
        while not text.accept(end):
            if self._inputs:
                text.expect(b",")
            at, value = text.at, self._new_value()
            text.expect(b":")
            place = len(self._inputs)
            self._define(value, self._type(), at)
            given = [*self._port_name(), *names[place : place + 1], ""]
            self._inputs.append((value, self._counted(given[0])))
            self._location()

    def _port_names(self) -> list[str]:
        """Return the names in a list of dictionaries, with an empty text for each without a name."""
        text, found = self._text, list[str]()
        text.expect(b"[")
        while not text.accept(b"]"):
            if found:
                text.expect(b",")
            if text.token != b"{":
                raise BadModel(f"{text.where()}: {{ is expected, and the text has {text.shown()}.")
            found.append([*self._port_name(), ""][0])
        return found

    def _port_name(self) -> list[str]:
        found: list[str] = []
        self._dictionary({"tosa.tensor_name": lambda: found.append(self._text.string())})
        return found

    def _body(self, results: Sequence[ValueType]) -> None:
        """Read the operators of the function, up to the bracket after its return."""
        text = self._text
        while text.token not in (b"return", b"func.return", b'"func.return"'):
            self._operator()
        is_generic, at = text.advance()[:1] == b'"', text.at
        if is_generic:
            text.expect(b"(")
        self._outputs = self._operands()
        if is_generic:
            text.expect(b")")
        types = []
        if self._outputs or is_generic:
            text.expect(b":")
            types = self._types_in_brackets()
            while not is_generic and text.accept(b","):
                types.append(self._type())
        if is_generic:
            text.expect(b"->", b"(", b")")
        if types != [self._types[value] for value in self._outputs] or types != list(results):
            raise BadModel(f"{text.where(at)}: the types of the results are not those of the function.")
        self._location()
        text.expect(b"}")

    def _operator(self) -> None:
        text = self._text
        results: list[tuple[str, int]] = []
        while text.token[:1] == b"%":
            at = text.at
            value, count = self._new_value(), 1
            if text.accept(b":"):
                count = int(text.pattern(re.compile(rb"\d{1,4}"), "the number of results").group())
            results += [(value if count == 1 else f"{value}#{place}", at) for place in range(count)]
            if not text.accept(b","):
                text.expect(b"=")
                break
        self._check("the results of an operator", "operands", len(results))
        begin, word = text.at, text.advance()
        name = word.strip(b'"').decode(errors="replace")
        operator = name.removeprefix("tosa.").upper()
        if not name.startswith("tosa.") or operator in ("COND_IF", "WHILE_LOOP") or "VARIABLE" in operator:
            raise UnsupportedModel(
                f"{text.where(begin)}: {name[:60]!r} cannot be compiled; one function of operators of the tosa dialect "
                "can, without control flow and variables. Write the model as TOSA 1.0."
            )
        is_generic = word[:1] == b'"'
        if is_generic:
            text.expect(b"(")
        inputs = self._operands()
        if is_generic:
            text.expect(b")")
        attributes = self._attributes(operator if operator in OPERATORS else "", name, begin)
        text.expect(b":")
        given = self._types_in_brackets()
        text.expect(b"->")
        types = self._types_in_brackets()
        if given != [self._types[value] for value in inputs] or len(types) != len(results):
            raise BadModel(f"{text.where(begin)}: {name} has other operands or results than its type says.")
        self._location()
        for (value, at), kind in zip(results, types, strict=True):
            self._define(value, kind, at)
        if operator in ("CONST", "CONST_SHAPE"):
            self._constant(results[0][0] if results else "", attributes.pop("values"), begin)
        outputs = tuple(value for value, _ in results)
        self._statements.append(
            _Statement(operator=operator, inputs=tuple(inputs), outputs=outputs, attributes=attributes)
        )
        self._check("its number of operators", "nodes", len(self._statements))

    def _constant(self, value: str, literal: object, begin: int) -> None:
        kind = self._types.get(value)
        if kind is None or not isinstance(literal, Literal) or kind != literal.type:
            raise BadModel(f"{self._text.where(begin)}: the type of the constant is not that of its numbers.")
        if kind.type_name in STORED:
            self._constants[value] = literal

    def _attributes(self, operator: str, name: str, begin: int) -> dict[str, object]:
        """Return the attributes of an operator as the schema names them, with defaults for those left out."""
        known = dict(ATTRIBUTES.get(operator, ()))
        if operator in ("CONST", "CONST_SHAPE"):
            known = {"values": "literal"}
        found: dict[str, object] = {}

        def reader(key: str, kind: str) -> Callable[[], None]:
            return lambda: found.__setitem__(key, self._attribute(kind))

        readers = {key: reader(key, kind) for key, kind in known.items()}
        unknown = [*self._properties(readers), *self._dictionary(readers)]
        odd = [key for key in unknown if "." not in key and operator not in _UNREAD]
        missing = [key for key, kind in known.items() if key not in found and kind not in _DEFAULTS]
        if operator and (odd or missing):
            raise UnsupportedModel(
                f"{self._text.where(begin)}: {name} has no {missing[0]}, which TOSA 1.0 needs."
                if missing
                else f"{self._text.where(begin)}: {name} has {odd[0][:60]!r}, which is no attribute of TOSA 1.0."
            )
        return {key: found.get(key, _DEFAULTS.get(kind)) for key, kind in known.items()}

    def _attribute(self, kind: str) -> object:
        text = self._text
        if kind == "literal":
            return self._literal()
        if kind == "ints":
            values = (text.pattern(_INTS, "a list as array<i64: 1, 1>").group(1) or b"").split(b",")
            if values == [b""]:
                return ()
            if not all(re.fullmatch(rb" *-?\d{1,18} *", value) for value in values):
                raise BadModel(f"{text.where()}: the list ahead of this has an entry that is no number.")
            return tuple(int(value) for value in values)
        if kind == "bool":
            return text.pattern(re.compile(rb"true|false"), "true or false").group() == b"true"
        if kind in CHOICES:
            begin, name = text.at, text.pattern(_CHOICE, f"one of {', '.join(CHOICES[kind])}").group(1).decode()
            name = name.removesuffix("_NEIGHBOR")  # the dialect's word for NEAREST
            if name not in CHOICES[kind]:
                raise BadModel(f"{text.where(begin)}: {name[:40]} is none of {', '.join(CHOICES[kind])}.")
            return name
        if kind == "dtype":
            return self._element(text.pattern(re.compile(rb"\w++"), "an element type").group())
        begin, number = text.at, text.advance()
        type_name = self._element(text.advance()) if text.accept(b":") else "int64"
        if kind == "int":
            return integers_of([number], "int32", begin, text.where)[0].item()
        if type_name not in STORED and type_name != "int64":
            raise UnsupportedModel(f"{text.where(begin)}: a limit of type {type_name} is not supported.")
        values = values_of([number], type_name, begin, text.where)
        return values.tobytes()[: max(BITS.get(type_name, 32) // 8, 1)].ljust(8, b"\0")

    def _literal(self) -> Literal:
        text, at = self._text, self._text.at
        is_resource = text.token == b"dense_resource"
        if not is_resource and text.token != b"dense":
            raise BadModel(f"{text.where()}: dense or dense_resource is expected, and the text has {text.shown()}.")
        text.advance()
        if text.token != b"<":
            raise BadModel(f"{text.where()}: < is expected, and the text has {text.shown()}.")
        text.advance()
        raw = b"" if text.token == b">" else text.until(b">").strip()
        if not raw:
            text.accept(b">")
        text.expect(b":")
        raw = raw.strip(b'"') if is_resource else raw
        return Literal(raw=raw, is_resource=is_resource, type=self._type(), at=at)

    def _constant_data(self, literal: Literal) -> np.ndarray:
        shape = literal.type.shape
        if None in shape:
            raise BadModel(f"{self._text.where(literal.at)}: the shape of a constant has an open axis.")
        self._weights_bytes += (
            math.prod(extent or 0 for extent in shape) * np.dtype(STORED[literal.type.type_name]).itemsize
        )
        self._check("its weights", "weights_bytes", self._weights_bytes)
        return constant_numbers(literal, self._resources, self._text.where)

    def _operands(self) -> list[str]:
        """Return the values in a list, each defined ahead of it."""
        text, found = self._text, list[str]()
        while text.token[:1] == b"%":
            value = text.token.decode()
            if value not in self._types:
                raise BadModel(f"{text.where()}: the value {value[:60]} is used, and no operator ahead of it has it.")
            text.advance()
            found.append(value)
            if not text.accept(b","):
                break
        self._check("the operands of an operator", "operands", len(found))
        return found

    def _new_value(self) -> str:
        if self._text.token[:1] != b"%" or b"#" in self._text.token:
            raise BadModel(f"{self._text.where()}: a value is expected, and the text has {self._text.shown()}.")
        return self._counted(self._text.advance().decode())

    def _define(self, value: str, kind: ValueType, at: int) -> None:
        if value in self._types:
            raise BadModel(f"{self._text.where(at)}: the value {value[:60]} is defined twice.")
        self._types[value] = kind
        self._check("its number of tensors", "fields", len(self._types))

    def _counted(self, name: str) -> str:
        self._text_bytes += len(name)
        self._check("its names", "text_bytes", self._text_bytes)
        return name

    def _types_in_brackets(self, names: list[str] | None = None) -> list[ValueType]:
        """Return the types in brackets, or the only type. With names, those of their attributes are added to them."""
        text, found = self._text, list[ValueType]()
        is_list = text.accept(b"(")
        while not found or is_list:
            if is_list and text.accept(b")"):
                break
            if found:
                text.expect(b",")
            found.append(self._type())
            if names is not None:
                # Only a type in brackets has attributes: a brace after a single type opens the function.
                names.append(self._counted([*(self._port_name() if is_list else ()), ""][0]))
        return found

    def _type(self) -> ValueType:
        text, begin = self._text, self._text.at
        found = _SHAPE.match(self._data, begin)
        if found:
            text.go_to(found.end())
            return ValueType(type_name="shape", shape=(int(found.group(1)),))
        found = _TENSOR.match(self._data, begin)
        if found is None:
            if text.token not in (b"tensor", b"!tosa.shape"):
                raise BadModel(f"{text.where()}: a type is expected, and the text has {text.shown()}.")
            raise UnsupportedModel(
                f"{text.where()}: this type cannot be compiled: its rank is open, or its elements are quantized or of "
                "another dialect. Write tensors of integers, as tensor<1x8xi8>; `tosa-opt` and the converter for "
                "TensorFlow Lite replace quantized types by integers."
            )
        extents = [None if extent == b"?" else int(extent) for extent in found.group(1).split(b"x")[:-1]]
        type_name = self._element(found.group(2))
        reason = self._limits.excess_of_tensor(
            [extent or 1 for extent in extents], np.dtype(STORED.get(type_name, "int8")).itemsize
        )
        if reason:
            raise UnsupportedModel(f"{text.where()}: this tensor is too large: {reason}.")
        text.go_to(found.end())
        return ValueType(type_name=type_name, shape=tuple(extents))

    def _element(self, name: bytes) -> str:
        found = _TYPES.get(name.decode(errors="replace"))
        if found is None:
            shown = name[:40].decode(errors="replace")
            raise UnsupportedModel(
                f"{self._text.where()}: the element type {shown!r} is not supported; TOSA has "
                f"{', '.join(one for one in _TYPES if one != 'index')}."
            )
        return found

    def _properties(self, readers: Mapping[str, Callable[[], None]]) -> list[str]:
        text = self._text
        if not text.accept(b"<"):
            return []
        unknown = self._dictionary(readers)
        text.expect(b">")
        return unknown

    def _dictionary(self, readers: Mapping[str, Callable[[], None]]) -> list[str]:
        """Read a dictionary of attributes, if there is one: each by its reader. Return the names of the others."""
        text, names = self._text, dict[str, None]()
        if not text.accept(b"{"):
            return []
        while not text.accept(b"}"):
            if names:
                text.expect(b",")
            begin = text.at
            name = text.string() if text.token[:1] == b'"' else text.pattern(_WORD, "a name").group().decode()
            if name in names:
                raise BadModel(f"{text.where(begin)}: the attribute {name[:60]!r} is given twice.")
            names[self._counted(name)] = None
            if text.accept(b"="):
                (readers.get(name) or text.skip_value)()
                if name in readers and text.token == b":":  # the type of a list or number, which its use decides
                    text.skip_value()
            elif name in readers:
                raise BadModel(f"{text.where(begin)}: the attribute {name[:60]!r} has no value.")
        return [name for name in names if name not in readers]

    def _read_resources(self) -> None:
        """Read the constants at the end of the text, with the four bytes of their alignment."""
        text = self._text
        while not text.accept(b"#-}"):
            section = text.advance()
            text.expect(b":", b"{")
            while not text.accept(b"}"):
                text.advance()
                text.expect(b":", b"{")
                while not text.accept(b"}"):
                    name = text.advance().strip(b'"')
                    text.expect(b":")
                    if section == b"dialect_resources" and text.token[:1] == b'"':
                        self._resources[name] = text.advance().strip(b'"')
                    else:
                        text.skip_value()
                    text.accept(b",")
                text.accept(b",")
            text.accept(b",")

    def _void_type(self) -> None:
        self._text.expect(b":", b"(", b")", b"->", b"(", b")")

    def _location(self) -> None:
        if self._text.token == b"loc":
            self._text.skip_group()

    def _check(self, what: str, limit: str, value: int) -> None:
        if reason := self._limits.excess(limit, value):
            raise UnsupportedModel(f"{self._path}: {what}: {reason}.")
