"""Silence for warnings of libraries, in one thread at a time: Python's filters of warnings are the whole process's."""

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
    """Ignores warnings of converters and exporters about choices that a user of this package cannot make.

    Notices of ours are shown, those of other threads meanwhile, too. Two threads that changed the filters at once would
    each put back what the other had set, so models are imported one after the other.
    """
    with _FILTERS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for notice in (ModelNotice, DefectNotice):
            warnings.simplefilter("default", notice)
        yield
