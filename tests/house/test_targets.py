"""An instruction set stands in its folder with all that is particular to it; nothing outside asks for its name."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from codegen_c.targets.registry import instruction_sets
from tests.support.imports import imports_of

ROOT = Path(__file__).parents[2]
PACKAGES = ("tvm_ext", "relay_passes", "codegen_c")
# "host" is also the machine that runs a package, "none" also no value.
WORDS = {"host", "none"}


def test_only_the_registry_knows_the_folders() -> None:
    own = tuple(f"{found.package}." for found in instruction_sets())
    shared = {"codegen_c.targets.registry", "codegen_c.targets.instruction_set"}
    for module, imported in imports_of(ROOT, PACKAGES).items():
        home = next((package for package in own if module.startswith(package)), None)
        foreign = {name for name in imported if name.startswith(own) and not (home and name.startswith(home))}
        assert not foreign, f"{module} imports {foreign}"
        targets = {name for name in imported if name.startswith("codegen_c.targets.") and not name.startswith(own)}
        assert home or module.startswith("codegen_c.targets.") or targets <= shared, module


def test_no_text_outside_names_an_instruction_set() -> None:
    names = {found.simd for found in instruction_sets()} - WORDS
    assert len(names) > 1
    named = re.compile(rf"(?<![a-z])({'|'.join(sorted(names))})(?![a-z])")
    for path in [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]:
        if "targets" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not named.search(node.value.lower()), f"{path}:{node.lineno}: {node.value[:80]!r}"
