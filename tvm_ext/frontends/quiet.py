"""Silence warnings of libraries, in one thread at a time: Python's warning filters belong to the process."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Generator
from contextlib import contextmanager

from tvm_ext.core.errors import DefectNotice
from tvm_ext.frontends.shapes import ModelNotice

_FILTERS = threading.RLock()


@contextmanager
def quiet() -> Generator[None]:
    """Ignore warnings of converters and exporters about choices that a user of this package cannot make.

    Our own warnings are shown, also those of other threads. Two threads that changed the filters at once would restore
    each other's settings, so models are imported one after another.
    """
    with _FILTERS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for notice in (ModelNotice, DefectNotice):
            warnings.simplefilter("default", notice)
        yield
