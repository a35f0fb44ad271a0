"""A decision as attributes of a Relax function, call or module, written by one package and read by others."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Protocol, Self, TypeVar


class Holder(Protocol):
    """Functions and modules of Relax, as far as decisions need them. This file does not import tvm."""

    @property
    def attrs(self) -> Any: ...
    def with_attrs(self, attr_map: Any, /) -> Self: ...
    def without_attr(self, attr_key: str, /) -> Self: ...


class Reading(Protocol):
    """Anything with attributes, including calls."""

    @property
    def attrs(self) -> Any: ...


Written = TypeVar("Written", bound=Holder)


def attribute(
    name: str,
    default: Any,
    *,
    read: Callable[[Any], Any] = str,
    write: Callable[[Any], Any] = lambda value: value,
) -> Any:
    """Declare a field of a decision.

    read, write: convert between the value of the attribute and the value of the field. A field at its default is not
    written.
    """
    return field(default=default, metadata={"attribute": name, "read": read, "write": write})


def json_attribute(name: str, default: Any, *, read: Callable[[Any], Any]) -> Any:
    """Declare a field that is stored as JSON text.

    read: converts the parsed text to the field's value.
    """
    return attribute(
        name,
        default,
        read=lambda text: read(json.loads(str(text))),
        write=lambda value: json.dumps(value, ensure_ascii=False),
    )


@dataclass(frozen=True, kw_only=True)
class Decision:
    """A dataclass whose fields are attributes. A function without these attributes has the default values."""

    @classmethod
    def read(cls, holder: Reading | None) -> Self:
        """Return the decision that a function, call or module carries, with defaults for missing attributes."""
        return cls.of(holder.attrs if holder is not None else None)

    @classmethod
    def of(cls, attributes: Mapping[str, Any] | None) -> Self:
        """Return the decision in a set of attributes, with defaults for missing attributes."""
        held: Any = attributes if attributes is not None else {}
        found = {own.name: own.metadata for own in fields(cls) if own.metadata["attribute"] in held}
        return cls(**{name: says["read"](held[says["attribute"]]) for name, says in found.items()})

    def attributes(self) -> dict[str, Any]:
        """Return the attributes of the fields that are not at their default."""
        values = {own: getattr(self, own.name) for own in fields(self)}
        return {
            own.metadata["attribute"]: own.metadata["write"](value)
            for own, value in values.items()
            if value != own.default
        }

    def write(self, holder: Written) -> Written:
        """Return the function or module with this decision in place of its previous one."""
        wanted = self.attributes()
        for name in self.names():
            if holder.attrs is not None and name in holder.attrs and name not in wanted:
                holder = holder.without_attr(name)
        return holder.with_attrs(wanted) if wanted else holder

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of the attributes."""
        return [own.metadata["attribute"] for own in fields(cls)]


def carried_over(after: Written, before: Written) -> Written:
    """Return a rewritten function or module with the decisions of its original, where it has no decision of its own."""
    own: Mapping[str, Any] = after.attrs or {}
    known: Mapping[str, Any] = before.attrs or {}
    missing = {key: value for key, value in known.items() if key not in own}
    return after.with_attrs(missing) if missing else after
