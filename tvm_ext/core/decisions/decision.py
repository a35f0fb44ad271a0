"""A decision as attributes of a function, call or module of Relax: written by one package, read by others."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Protocol, Self, TypeVar


class Holder(Protocol):
    """Functions and modules of Relax, as far as decisions need them; tvm itself is not known here."""

    @property
    def attrs(self) -> Any: ...
    def with_attrs(self, attr_map: Any, /) -> Self: ...
    def without_attr(self, attr_key: str, /) -> Self: ...


class Reading(Protocol):
    """Anything that has attributes: calls too."""

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
    """A field of a decision. read, write: between the field's value and the attribute's; not written at its default."""
    return field(default=default, metadata={"attribute": name, "read": read, "write": write})


def json_attribute(name: str, default: Any, *, read: Callable[[Any], Any]) -> Any:
    """A field kept as JSON text. read: the field's value of the parsed one."""
    return attribute(
        name,
        default,
        read=lambda text: read(json.loads(str(text))),
        write=lambda value: json.dumps(value, ensure_ascii=False),
    )


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Fields are attributes. Every decision has a value for a function without them: its defaults."""

    @classmethod
    def read(cls, holder: Reading | None) -> Self:
        """The decision as a function, call or module carries it; the defaults where it does not."""
        return cls.of(holder.attrs if holder is not None else None)

    @classmethod
    def of(cls, attributes: Mapping[str, Any] | None) -> Self:
        """The decision in attributes alone; the defaults where they do not hold it."""
        held: Any = attributes if attributes is not None else {}
        found = {own.name: own.metadata for own in fields(cls) if own.metadata["attribute"] in held}
        return cls(**{name: says["read"](held[says["attribute"]]) for name, says in found.items()})

    def attributes(self) -> dict[str, Any]:
        """Attributes of the fields that are not at their default."""
        values = {own: getattr(self, own.name) for own in fields(self)}
        return {
            own.metadata["attribute"]: own.metadata["write"](value)
            for own, value in values.items()
            if value != own.default
        }

    def write(self, holder: Written) -> Written:
        """The function or module with this decision in place of the one it carried."""
        wanted = self.attributes()
        for name in self.names():
            if holder.attrs is not None and name in holder.attrs and name not in wanted:
                holder = holder.without_attr(name)
        return holder.with_attrs(wanted) if wanted else holder

    @classmethod
    def names(cls) -> list[str]:
        """Names of the attributes."""
        return [own.metadata["attribute"] for own in fields(cls)]


def carried_over(after: Written, before: Written) -> Written:
    """A function or module with the decisions of the one that it was made of, where it does not say them itself."""
    own: Mapping[str, Any] = after.attrs or {}
    known: Mapping[str, Any] = before.attrs or {}
    missing = {key: value for key, value in known.items() if key not in own}
    return after.with_attrs(missing) if missing else after
