"""Progress of a build: how a caller is told of its stages, and how they are shown in notebooks and as plain lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tvm_ext.core.errors import BadOptions

Progress = Callable[[str], object]
"""Called with the name of a stage when it begins. If it returns a context manager, the stage runs inside of it, so that
the caller also learns when the stage ends or fails. Stages in different threads may overlap."""


@contextmanager
def stage(progress: Progress | None, name: str) -> Generator[None]:
    """Report a stage that lasts as long as the block."""
    told = progress(name) if progress else None
    with told if isinstance(told, AbstractContextManager) else nullcontext():
        yield


def named(progress: Progress | None, model: str) -> Progress | None:
    """Return a progress function for one model of a bundle: it puts the model's name before each stage."""
    return (lambda name: progress(f"{model}: {name}")) if progress else None


@contextmanager
def told(progress: Progress | bool | None) -> Generator[Progress]:
    """Turn the `progress` argument of a public function into a progress function, valid inside the block.

    progress: a function is used as it is. True shows stages: as a bar in a notebook with tqdm or ipywidgets, otherwise
    as lines on standard error. None and False show nothing. Raises BadOptions for any other value.
    """
    if progress is None or progress is False:
        yield lambda _: None
    elif progress is not True:
        if not callable(progress):
            raise BadOptions(
                f"progress is of type {type(progress).__name__}; a function of one text is needed, or True for a bar "
                "or lines."
            )
        yield progress
    elif not _in_notebook():
        yield lambda stage: print(stage, file=sys.stderr, flush=True)
    else:
        with _bar() as say:
            yield say


def _in_notebook() -> bool:
    """Return whether this is a Jupyter kernel, which can show widgets. An IPython console cannot."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


@contextmanager
def _bar() -> Generator[Progress]:
    """Show stages with tqdm (as a widget if ipywidgets is installed), else with an ipywidgets label, else as lines."""
    has_widgets = find_spec("ipywidgets") is not None
    if find_spec("tqdm") is not None:
        tqdm = import_module("tqdm.notebook" if has_widgets else "tqdm.std").tqdm
        with tqdm(bar_format="{desc} [{elapsed}]") as bar:
            yield bar.set_description_str
            bar.set_description_str("done")
    elif has_widgets:
        label = import_module("ipywidgets").Label()
        import_module("IPython.display").display(label)
        yield lambda stage: setattr(label, "value", stage)
        label.value = "done"
    else:
        yield lambda stage: print(stage, file=sys.stderr, flush=True)
