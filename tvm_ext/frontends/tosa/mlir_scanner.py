"""Words of an MLIR text that is not trusted, with the line and column of each for messages.

The scanner works on the bytes of the file from the front to the end, without recursion. It goes past attributes that a
reader does not need by their brackets.
"""

from __future__ import annotations

import re
from pathlib import Path

from tvm_ext.core.errors import BadModel

_SPACE = re.compile(rb"(?:[ \t\r\n]++|//[^\n]*+)*+")
_TOKEN = re.compile(
    rb"\{-#|#-\}|->|::"
    rb'|"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"'
    rb"|%[\w$.-]++(?:#\d++)?|\^[\w$.-]++|@[\w$.-]++|[#!][A-Za-z_][\w$.]*+"
    rb"|0x[0-9A-Fa-f]++|-?\d++(?:\.\d*+)?(?:[eE][+-]?\d++)?|[A-Za-z_][\w$.]*+|[](){}<>[,:=?*]"
)
_PAIRS = {b"(": b")", b"[": b"]", b"{": b"}", b"<": b">"}


class Scanner:
    """Tokens of a text, one after the other, with the position of each for messages."""

    def __init__(self, path: Path, data: memoryview) -> None:
        self._path, self._data = path, data
        self.end = 0
        self.at, self.token = 0, b""
        self.advance()

    def advance(self) -> bytes:
        """Return the token, and go to the next one, which is empty at the end of the text."""
        last = self.token
        self.at = self._match(_SPACE, self.end).end()
        found = _TOKEN.match(self._data, self.at)
        if found is None and self.at < len(self._data):
            character = bytes(self._data[self.at : self.at + 1])
            raise BadModel(f"{self.where()}: the character {character!r} begins no word of MLIR.")
        self.end, self.token = (found.end(), found.group()) if found else (self.at, b"")
        return last

    def accept(self, token: bytes) -> bool:
        """Go past the token if it is the next one."""
        if self.token != token:
            return False
        self.advance()
        return True

    def expect(self, *tokens: bytes) -> None:
        for token in tokens:
            if not self.accept(token):
                raise BadModel(f"{self.where()}: {token.decode()} is expected, and the text has {self.shown()}.")

    def pattern(self, pattern: re.Pattern[bytes], what: str) -> re.Match[bytes]:
        """Return the match of a pattern that begins at the token, and go past it."""
        found = pattern.match(self._data, self.at)
        if found is None:
            raise BadModel(f"{self.where()}: {what} is expected, and the text has {self.shown()}.")
        self.go_to(found.end())
        return found

    def go_to(self, place: int) -> None:
        self.end = place
        self.advance()

    def until(self, end: bytes) -> bytes:
        """Return the text from the token to a character, and go past the character."""
        place, found = self.at, re.compile(re.escape(end)).search(self._data, self.at)
        if found is None:
            raise BadModel(f"{self.where()}: {end.decode()} is missing in the rest of the text.")
        self.go_to(found.end())
        return bytes(self._data[place : found.start()])

    def skip_value(self) -> None:
        """Go past an attribute of any kind: to the comma or bracket that ends it, over all brackets that it opens."""
        open_ones: list[bytes] = []
        begin = self.at
        while open_ones or self.token not in (b",", *_PAIRS.values()):
            token = self.advance()
            if token in _PAIRS:
                open_ones.append(_PAIRS[token])
            elif token in _PAIRS.values() and token != open_ones.pop():
                raise BadModel(f"{self.where()}: a bracket {token.decode()} closes none that is open.")
            elif not token:
                raise BadModel(f"{self.where(begin)}: the text ends inside of this attribute.")

    def skip_group(self) -> None:
        """Go past one word, and past the bracket that follows it, as `loc("m.mlir":1:2)` has it."""
        if self.token not in _PAIRS:
            self.advance()
        if self.token in _PAIRS:
            end = _PAIRS[self.advance()]
            while self.token != end:
                self.skip_value()
                if self.token != end:
                    self.expect(b",")
            self.advance()

    def string(self) -> str:
        if self.token[:1] != b'"':
            raise BadModel(f"{self.where()}: a string is expected, and the text has {self.shown()}.")
        try:
            return self.token[1:-1].decode()
        except UnicodeDecodeError:
            raise BadModel(f"{self.where()}: this string is not UTF-8.") from None
        finally:
            self.advance()

    def shown(self) -> str:
        return repr(self.token[:40].decode(errors="replace")) if self.token else "its end"

    def where(self, at: int | None = None) -> str:
        """Return file, line and column of a position, of the token by default."""
        before = bytes(self._data[: self.at if at is None else at])
        return f"{self._path}:{before.count(10) + 1}:{len(before) - before.rfind(10)}"

    def _match(self, pattern: re.Pattern[bytes], place: int) -> re.Match[bytes]:
        found = pattern.match(self._data, place)
        assert found is not None  # the pattern matches the empty text
        return found
