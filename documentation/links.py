"""Links between documents: paths in the repository, and their places in the site."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator

_LINK = re.compile(r"(?<=\]\()(?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?(?=\))")
_OUTSIDE = re.compile(r"^([a-z]+:|/)")


def links(text: str, path: str) -> Iterator[str]:
    """Yield the paths in the repository to which a document links. path: of the document."""
    for found in _LINK.finditer(text):
        if not _OUTSIDE.match(found["target"]):
            yield _resolved(found["target"], path)


def with_links(text: str, path: str, place: str, place_of: Callable[[str], str | None]) -> str:
    """Return a document with its links changed to places in the site.

    path, place: of the document, in the repository and in the site. place_of: returns the place of a path; None if it
    is not in the site, whose link then stays unchanged, so that the strict build reports it.
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
