"""Load the extensions of other installed distributions, which declare them as entry points."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from tvm_ext.core.errors import ExtensionFailed

PASSES = "tvm_ext.passes"
"""Group of passes over Relax modules."""
PLANNERS = "tvm_ext.planners"
"""Group of planners of offsets."""


@dataclass(frozen=True, kw_only=True)
class Extension:
    """The object that an entry point provides.

    name: of the entry point.
    distribution: with its version, for reports and errors.
    """

    name: str
    distribution: str
    value: Any

    @property
    def said(self) -> str:
        """Name the extension and its distribution, for messages."""
        return f"{self.name} of {self.distribution}"


def extensions(group: str) -> tuple[Extension, ...]:
    """Return the extensions of installed distributions in a group, by name.

    Raises ExtensionFailed if an extension cannot be loaded, or if two of the group have one name.
    """
    return _found(group, tuple(sys.path))


@cache
def _found(group: str, path: tuple[str, ...]) -> tuple[Extension, ...]:
    """Return the extensions found on a path. The path is an argument so that the cache depends on it."""
    found: list[Extension] = []
    for point in sorted(entry_points(group=group), key=lambda one: (one.name, one.value)):
        said = f"{point.dist.name} {point.dist.version}" if point.dist else "a distribution not named"
        try:
            value = point.load()
        except Exception as error:  # the module of the other distribution may raise anything
            raise ExtensionFailed(
                f"{group}: {point.name} = {point.value} of {said} cannot be loaded: {type(error).__name__}: {error}. "
                "Fix or uninstall it."
            ) from error
        if any(one.name == point.name for one in found):
            raise ExtensionFailed(
                f"{group}: {point.name} is defined twice, the second time by {said}; uninstall one of the two."
            )
        found.append(Extension(name=point.name, distribution=said, value=value))
    return tuple(found)
