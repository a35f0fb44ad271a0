"""Progress of a build as its caller asks to be told: a function of their own, a bar in a notebook, plain lines."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tvm_ext.core.errors import BadOptions
from tvm_ext.core.progress import Progress


@contextmanager
def told(progress: Progress | bool | None) -> Generator[Progress]:
    """A function to tell what begins, for as long as the block runs.

    progress: a function that is told; True shows stages, in a notebook as a bar where tqdm or ipywidgets is installed,
    elsewhere as lines on standard error; None and False show nothing. Raises BadOptions for anything else.
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
    """True within a kernel of Jupyter, which shows widgets; a console of IPython does not."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


@contextmanager
def _bar() -> Generator[Progress]:
    """A bar of tqdm's, as a widget where ipywidgets are there, too; a label of theirs; or lines."""
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
