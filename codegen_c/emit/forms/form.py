"""The form of a package for one build system, as data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from tvm_ext.core.toolchain import LANGUAGE_FLAGS

NEEDED_FLAGS = tuple(flag for flag in LANGUAGE_FLAGS if flag == "-ffp-contract=off")
"""Flags that generated C needs under any build system; all others are the user's."""
HOME = "https://tvm.apache.org"
"""Home page for metadata that requires one: a package has no page of its own."""


@dataclass(frozen=True, kw_only=True)
class PackageParts:
    """A package's library for build systems. sources, headers: relative names; version: of the generator."""

    name: str
    platform: str
    sources: Sequence[str]
    headers: Sequence[str]
    version: str

    @classmethod
    def of(cls, name: str, platform: str, texts: Collection[str], generator: str) -> Self:
        """Return the parts of a package from the names of its library's files. generator: such as `tvm_ext 1.2.3`."""
        return cls(
            name=name, platform=platform, version=generator.rpartition(" ")[2],
            sources=[text for text in texts if text.endswith(".c")],
            headers=[text for text in texts if text.endswith(".h")],
        )  # fmt: skip

    @property
    def description(self) -> str:
        return f"{self.name}, a neural network as C for {self.platform}, made by tvm_ext {self.version}"


def no_files(_: PackageParts) -> Mapping[str, str]:
    return {}


def no_text(_: PackageParts) -> str:
    return ""


@dataclass(frozen=True, kw_only=True)
class Form:
    """A build system. title: its name in the package's README. usage: lines that a user types, with `{name}` in them.

    files: texts by relative name. in_cmake: lines for the package's CMakeLists.txt, if the build system reads it.
    """

    title: str
    usage: str
    files: Callable[[PackageParts], Mapping[str, str]] = no_files
    in_cmake: Callable[[PackageParts], str] = no_text
