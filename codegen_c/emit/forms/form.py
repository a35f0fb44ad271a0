"""A form of a package for one build system, as data, and what forms are made of."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from tvm_ext.core.toolchain import LANGUAGE_FLAGS

NEEDED_FLAGS = tuple(flag for flag in LANGUAGE_FLAGS if flag in ("-fno-strict-aliasing", "-ffp-contract=off"))
"""Flags that generated C needs under any build system; all others are the user's."""
HOME = "https://tvm.apache.org"
"""Page where metadata has to have one: a package has none of its own."""


@dataclass(frozen=True, kw_only=True)
class PackageParts:
    """A package's library as build systems see it. sources, headers: relative names; version: of what made it."""

    name: str
    platform: str
    sources: Sequence[str]
    headers: Sequence[str]
    version: str

    @classmethod
    def of(cls, name: str, platform: str, texts: Collection[str], generator: str) -> Self:
        """Parts of a package by the names of its library's files. generator: `tvm_ext 1.2.3`."""
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
    """One build system. title: its name in the package's README. usage: lines that a user types, `{name}` filled in.

    files: texts by relative name. in_cmake: text for the package's CMakeLists.txt, where the system reads that one.
    """

    title: str
    usage: str
    files: Callable[[PackageParts], Mapping[str, str]] = no_files
    in_cmake: Callable[[PackageParts], str] = no_text
