"""Imports of packages as their files state them: at the top, inside functions, and for type checkers alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path


def imports_of(root: Path, packages: Sequence[str]) -> dict[str, set[str]]:
    """Module -> modules of the same packages that its file imports. root: the folder of the packages."""
    files = {_module(path.relative_to(root)): path for package in packages for path in (root / package).rglob("*.py")}
    return {name: {found for found in _imported(path, files) if found != name} for name, path in files.items()}


def circle_in(imports: Mapping[str, set[str]]) -> list[str]:
    """Modules that import each other in a circle, the first again at the end; empty where there is no circle."""
    done: set[str] = set()

    def walk(module: str, path: list[str]) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return []
        for imported in sorted(imports[module]):
            if found := walk(imported, [*path, module]):
                return found
        done.add(module)
        return []

    return next((found for module in sorted(imports) if (found := walk(module, []))), [])


def _module(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield from [name] if name in known else [node.module] if node.module in known else []
