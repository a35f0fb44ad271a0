"""Links between documents: as they stand in the repository, and as the site has them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator

_LINK = re.compile(r"(?<=\]\()(?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?(?=\))")
_OUTSIDE = re.compile(r"^([a-z]+:|/)")


def links(text: str, path: str) -> Iterator[str]:
    """Paths in the repository that a document links; `path` is its own."""
    for found in _LINK.finditer(text):
        if not _OUTSIDE.match(found["target"]):
            yield _resolved(found["target"], path)


def with_links(text: str, path: str, place: str, place_of: Callable[[str], str | None]) -> str:
    """A document with its links as the site has them.

    path, place: of the document, in the repository and in the site. place_of: of any path of the repository, None where
    the site does not have it; such a link stays, and the strict build complains.
    """

    def replaced(found: re.Match[str]) -> str:
        if _OUTSIDE.match(found["target"]):
            return found[0]
        target = place_of(_resolved(found["target"], path))
        if target is None:
            return found[0]
        return posixpath.relpath(target, posixpath.dirname(place) or ".") + (found["anchor"] or "")

    return _LINK.sub(replaced, text)


def _resolved(target: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
