"""Compiled Jinja templates, kept where Python keeps the compiled modules of the same folder.

Compiling the templates takes a quarter of a second, as long as the rest of the text of a small package. Whoever can
write to `__pycache__` of an installed package can change its modules, so its entries are trusted as these are.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket


def remember_compiled(environment: jinja2.Environment) -> jinja2.Environment:
    """Return the environment with its compiled templates kept for later processes."""
    options = (
        jinja2.__version__, environment.trim_blocks, environment.lstrip_blocks, environment.keep_trailing_newline,
        environment.autoescape, environment.undefined.__name__,
    )  # fmt: skip
    environment.bytecode_cache = _CompiledTemplates(options=repr(options))
    return environment


@dataclass(frozen=True, kw_only=True)
class _CompiledTemplates(jinja2.BytecodeCache):
    """The compiled templates of an environment. options: all that their code depends on beside their source.

    An entry begins with a digest of the options and the code. An entry that is damaged or has other options is compiled
    again and replaced. Jinja itself compares the source.
    """

    options: str

    def get_cache_key(self, name: str, filename: str | None = None) -> str:
        """Return the path of a template's entry; empty for a template that is no file."""
        if filename is None or not os.path.isfile(filename):
            return ""
        return cache_from_source(filename, optimization="jinja")

    def load_bytecode(self, bucket: Bucket) -> None:
        with suppress(OSError, ValueError, EOFError, TypeError):
            digest, _, code = Path(bucket.key).read_bytes().partition(b"\n")
            if digest == self._digest(code):
                bucket.bytecode_from_string(code)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Store an entry as a whole or not at all. As with modules, a folder that cannot be written to is no error."""
        if sys.dont_write_bytecode or not bucket.key:
            return
        place, code = Path(bucket.key), bucket.bytecode_to_string()
        with suppress(OSError):
            place.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as file:
                try:
                    file.write(self._digest(code) + b"\n" + code)
                    file.flush()
                    os.replace(file.name, place)
                except OSError:
                    os.unlink(file.name)
                    raise

    def _digest(self, code: bytes) -> bytes:
        return hashlib.sha256(self.options.encode() + code).hexdigest().encode()
