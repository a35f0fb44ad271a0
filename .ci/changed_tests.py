"""Print the tests for what a branch changed, one path per line: `make test-changed` runs them.

    python .ci/changed_tests.py [BASE]

BASE: the commit to compare with; by default where the branch left `main`, or HEAD on `main` itself. Uncommitted changes
count. Tests of a source file are those that benchmarks/mutating/tests_of.toml names for it, and those that import its
module, directly or by a helper in tests/. Where a file has neither, all tests run.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
ALWAYS = ("tests/golden", "tests/house")
"""Tests that take seconds and notice most slips."""
BY_PATTERN = {
    "*.md": ("tests/house", "tests/tutorials"),
    "*.[ch]": ("tests/kernels", "tests/golden"),
    "*.j2": ("tests/golden", "tests/report", "tests/forms"),
    "tvm_ext/boards/*.toml": ("tests/boards/test_shipped_boards.py",),
    "tvm_ext/platforms/*.toml": ("tests/boards", "tests/errors"),
    "tvm_ext/profiling/cores/*.toml": ("tests/profiling",),
    "benchmarks/results/*": ("tests/house",),
    "documentation/*": ("tests/house",),
    "tutorials/*": ("tests/tutorials",),
    "tests/golden/expected/*": ("tests/golden",),
}
"""Tests of files that are no modules; the first pattern that matches counts."""
WHOLE_SUITE = ("tests",)


def main(arguments: list[str]) -> int:
    base = arguments[0] if arguments else _base()
    changed = sorted({*_git("diff", "--name-only", base), *_git("ls-files", "--others", "--exclude-standard")})
    print(*chosen_tests(changed), sep="\n")
    return 0


def chosen_tests(changed: Iterable[str]) -> list[str]:
    """Return paths of tests for changed files, paths from the project's root; all tests where one has none."""
    found = {*ALWAYS}
    for path in changed:
        tests = tests_of(path)
        if not tests:
            return [*WHOLE_SUITE]
        found |= {test for test in tests if (ROOT / test).exists()}
    folders = {test for test in found if not test.endswith(".py")}
    return sorted(test for test in found if not folders & {str(one) for one in PurePosixPath(test).parents})


def tests_of(path: str) -> set[str]:
    """Return tests that may notice a change of a file; empty where none is known."""
    if path.endswith(".py") and not path.startswith(("documentation/", "tutorials/")):
        return {*_mapped(path), *_importing(path)}
    if "/" not in path or path.startswith((".ci/", ".github/")):
        return {*ALWAYS}
    return next(({*tests} for pattern, tests in BY_PATTERN.items() if fnmatch(path, pattern)), set())


def _mapped(path: str) -> Iterator[str]:
    """Tests that mutation testing runs for a file."""
    rows = tomllib.loads((ROOT / "benchmarks/mutating/tests_of.toml").read_text(encoding="utf-8"))["files"]
    for row in rows:
        if PurePosixPath(path).match(row["pattern"]):
            yield from row["tests"]


def _importing(path: str) -> Iterator[str]:
    """Test files that import a module, or are it, or import a module of tests/ that does."""
    waiting, seen = [path], set[str]()
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        if PurePosixPath(current).match("tests/*/test_*.py"):
            yield current
        module = current.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        waiting += [user for user, modules in _imports().items() if module in modules]


@cache
def _imports() -> dict[str, set[str]]:
    """Modules that each file of tests/ imports, functions' own imports included."""
    return {
        path.relative_to(ROOT).as_posix(): {*_modules(ast.parse(path.read_text(encoding="utf-8")))}
        for path in sorted((ROOT / "tests").rglob("*.py"))
    }


def _modules(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _base() -> str:
    (branch,) = _git("rev-parse", "--abbrev-ref", "HEAD")
    return "HEAD" if branch == "main" else _git("merge-base", "main", "HEAD")[0]


def _git(*arguments: str) -> list[str]:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
