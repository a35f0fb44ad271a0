"""Code of other distributions that entry points bring. Only installed distributions have them: no path, no file."""

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
    """What an entry point brings. name: its own. distribution: with its version, as reports and errors tell it."""

    name: str
    distribution: str
    value: Any

    @property
    def said(self) -> str:
        return f"{self.name} of {self.distribution}"


def extensions(group: str) -> tuple[Extension, ...]:
    """What the installed distributions bring under a group, by name. Raises ExtensionFailed where one is not there."""
    return _found(group, tuple(sys.path))


@cache
def _found(group: str, path: tuple[str, ...]) -> tuple[Extension, ...]:
    """The same, for what is found on a path."""
    found: list[Extension] = []
    for point in sorted(entry_points(group=group), key=lambda one: (one.name, one.value)):
        said = f"{point.dist.name} {point.dist.version}" if point.dist else "a distribution not named"
        try:
            value = point.load()
        except Exception as error:  # whatever the other distribution's module raises
            raise ExtensionFailed(
                f"{group}: {point.name} = {point.value} of {said} cannot be loaded: {type(error).__name__}: {error}. "
                "Mend or uninstall it."
            ) from error
        if any(one.name == point.name for one in found):
            raise ExtensionFailed(f"{group}: {point.name} is brought twice, also by {said}; uninstall one of the two.")
        found.append(Extension(name=point.name, distribution=said, value=value))
    return tuple(found)
