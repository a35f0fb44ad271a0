"""Source text -> the changes of one thing that can be made in it, each as the bytes that it replaces.

Places come from Python's syntax tree, the text stays as it is written: a survivor is reported as the line that a reader
finds in the file. Left alone are docstrings, annotations, decorators, assertions, messages (f-strings) and `strict=` of
zip: a change there is no fault of what the program computes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
}
ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.FloorDiv: ("//", "*"),
    ast.Div: ("/", "*"),
    ast.Mod: ("%", "//"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
LEAVES = (ast.Raise, ast.Return, ast.Continue, ast.Break)


@dataclass(frozen=True, kw_only=True)
class Change:
    """Bytes [begin, end) of a file and the text that takes their place."""

    kind: str
    line: int
    begin: int
    end: int
    text: str

    def applied(self, source: bytes) -> bytes:
        return source[: self.begin] + self.text.encode() + source[self.end :]

    def shown(self, source: bytes) -> tuple[str, str]:
        """The line as it is and as it becomes, of a change over several lines the first of them."""
        start = source.rfind(b"\n", 0, self.begin) + 1
        changed = self.applied(source)
        return tuple(text[start:].split(b"\n", 1)[0].decode().strip() for text in (source, changed))


def changes_of(source: bytes) -> list[Change]:
    """All changes of a file, by place. Those that Python cannot compile are none."""
    found = sorted(set(_Changes(source).all()), key=lambda change: (change.begin, change.end, change.text))
    return [change for change in found if _compiles(change.applied(source))]


def _compiles(source: bytes) -> bool:
    try:
        compile(source, "mutant", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


class _Changes:
    """Walks the tree of one file."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.starts = [0, *(match.end() for match in re.finditer(rb"\n", source))]

    def all(self) -> Iterator[Change]:
        yield from self._inside(ast.parse(self.source), returns_bool=False)

    def _inside(self, node: ast.AST, *, returns_bool: bool) -> Iterator[Change]:
        if isinstance(node, ast.JoinedStr | ast.Assert) or (isinstance(node, ast.keyword) and node.arg == "strict"):
            return
        if isinstance(node, ast.FunctionDef):
            returns_bool = isinstance(node.returns, ast.Name) and node.returns.id == "bool"
        yield from self._of(node, returns_bool=returns_bool)
        left_alone = {id(child) for child in getattr(node, "decorator_list", ())}
        left_alone |= {id(getattr(node, name, None)) for name in ("annotation", "returns")}
        for child in ast.iter_child_nodes(node):
            if id(child) not in left_alone:
                yield from self._inside(child, returns_bool=returns_bool)

    def _of(self, node: ast.AST, *, returns_bool: bool) -> Iterator[Change]:
        match node:
            case ast.Compare():
                operands = [node.left, *node.comparators]
                for left, operator, right in zip(operands, node.ops, operands[1:], strict=False):
                    yield from self._between("comparison", left, right, *COMPARISONS[type(operator)])
            case ast.BoolOp():
                was, becomes = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
                for left, right in zip(node.values, node.values[1:], strict=False):
                    yield from self._between("and, or", left, right, was, becomes)
            case ast.BinOp() if type(node.op) in ARITHMETIC and not _is_text(node.left) and not _is_text(node.right):
                yield from self._between("arithmetic", node.left, node.right, *ARITHMETIC[type(node.op)])
            case ast.UnaryOp(op=ast.Not()):
                yield self._instead("negation", node, self._text(node.operand))
            case ast.Constant(value=bool()):
                yield self._instead("constant", node, str(not node.value))
            case ast.Constant(value=int()):
                yield self._instead("constant", node, str(node.value + 1))
            case ast.Constant(value=float()):
                yield self._instead("constant", node, f"({self._text(node)} * 2)" if node.value else "1.0")
            case ast.Call(func=ast.Name(id=name)) if name in CALLS:
                yield self._instead("function", node.func, CALLS[name])
            case ast.If() if not node.orelse and isinstance(node.body[-1], LEAVES):
                yield self._instead("guard", node.test, "False")
            case ast.If() | ast.IfExp():
                yield self._instead("condition", node.test, f"(not ({self._text(node.test)}))")
            case ast.Return(value=ast.expr()) if returns_bool:
                yield self._instead("return", node.value, f"not ({self._text(node.value)})")
            case ast.Expr(value=ast.Call()) | ast.AugAssign():
                yield self._instead("statement", node, "pass")
            case _:
                pass

    def _at(self, line: int, column: int) -> int:
        return self.starts[line - 1] + column

    def _span(self, node: ast.AST) -> tuple[int, int]:
        return self._at(node.lineno, node.col_offset), self._at(node.end_lineno, node.end_col_offset)

    def _text(self, node: ast.AST) -> str:
        begin, end = self._span(node)
        return self.source[begin:end].decode()

    def _instead(self, kind: str, node: ast.AST, text: str) -> Change:
        begin, end = self._span(node)
        return Change(kind=kind, line=node.lineno, begin=begin, end=end, text=text)

    def _between(self, kind: str, left: ast.AST, right: ast.AST, was: str, becomes: str) -> Iterator[Change]:
        """The operator between two operands, which may have brackets and comments about it."""
        begin, end = self._span(left)[1], self._span(right)[0]
        gap = re.sub(rb"#[^\n]*", lambda match: b" " * len(match.group()), self.source[begin:end])
        place = gap.find(was.encode())
        if place >= 0:
            at = begin + place
            line = self.source.count(b"\n", 0, at) + 1
            yield Change(kind=kind, line=line, begin=at, end=at + len(was), text=becomes)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
