"""Functions of the child process that holds a package's library: load it, run it, copy its arenas between steps.

`Child` calls these functions and passes values only. The interface was checked against the package's header when the
library was built, so the sizes here match the C.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from codegen_c.program.status import NOT_READY, NOT_RESET
from tvm_ext.core.alignment import MOST_ALIGNMENT_BYTES
from tvm_ext.core.errors import BadPackage
from tvm_ext.core.processes.wire import Value

Array = np.ndarray[Any, Any]

OUT_OF_ORDER = 1000
"""Status of a row callback, and so of the run, if the C asks for other rows than the next ones."""

_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32)
_STRIP_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int32] * 4)
_HOOK = ctypes.CFUNCTYPE(None, ctypes.c_int32)
_ALIGNMENT_BYTES = MOST_ALIGNMENT_BYTES
# State of the child process, which holds a single library.
_loaded: dict[str, ctypes.CDLL] = {}
_serving: dict[str, threading.Thread] = {}
_instances: dict[str, Array] = {}


def load(path: str) -> None:
    """Load the library for `run`. Raises BadPackage."""
    try:
        _loaded["library"] = ctypes.CDLL(path)
    except OSError as error:
        raise BadPackage(f"the host library cannot be loaded: {error}.") from None


def hold(instance: str, num_bytes: int) -> None:
    """Allocate memory for an instance, under a name that the other functions take."""
    _instances[instance] = np.zeros(num_bytes + _ALIGNMENT_BYTES, np.uint8)


def call(symbol: str, instance: str = "") -> None:
    """Call a C function that has no arguments except the instance."""
    function = getattr(_loaded["library"], symbol)
    function.restype = None
    function(*_handed_in(instance))


def read_bytes(symbol: str, num_bytes: int, instance: str = "") -> bytes:
    """Return the bytes at the address that a C function returns."""
    return ctypes.string_at(_address(_loaded["library"], symbol, instance), num_bytes)


def write_bytes(symbol: str, data: bytes, instance: str = "") -> None:
    """Write bytes to the address that a C function returns."""
    ctypes.memmove(_address(_loaded["library"], symbol, instance), data, len(data))


def run(call: dict[str, Value], ask: Callable[..., Value] | None = None) -> dict[str, Value]:
    """Run a model once. Return its status, its outputs as flat arrays, and the tensors that were copied on the way.

    call: `symbol` of the run function; `io`; `instance`, empty for none; `inputs` with `symbol` (accessor), `name`,
    `rows`, `strips`, `columns` and `elements`; `outputs` with `num_elements` and `dtype` instead of elements; `watch`,
    or None, as in `_watch`; `servers`, the functions of the other processors, which run here as threads.
    """
    library = _loaded["library"]
    _serve(library, call["servers"])
    function = getattr(library, call["symbol"])
    function.restype = ctypes.c_int32
    inputs: list[dict[str, Value]] = call["inputs"]
    outputs = [{**out, "elements": np.zeros(out["num_elements"], out["dtype"])} for out in call["outputs"]]
    instance: str = call["instance"]
    own = _handed_in(instance)
    seen: dict[str, Array] = {}
    hook = _watch(library, call["watch"], seen, ask) if call["watch"] else None
    if call["io"] == "stream":
        io, functions = _io_struct(inputs, outputs)
        status = function(*own, ctypes.byref(io))
        functions.clear()
    elif call["io"] == "caller":
        status = function(*own, *(ctypes.c_void_p(port["elements"].ctypes.data) for port in (*inputs, *outputs)))
    else:
        for port in inputs:
            ctypes.memmove(
                _address(library, port["symbol"], instance), port["elements"].ctypes.data, port["elements"].nbytes
            )
        status = function(*own)
        for port in outputs:
            ctypes.memmove(
                port["elements"].ctypes.data, _address(library, port["symbol"], instance), port["elements"].nbytes
            )
    del hook
    # A run that returns NOT_RESET ended before its first step, so its servers still wait and serve the next run.
    if status != NOT_RESET:
        _join(call["servers"])
    return {"status": status, "outputs": [port["elements"] for port in outputs], "seen": seen}


def run_successive(call: dict[str, Value]) -> dict[str, Value]:
    """Run successive inputs through a pipeline. Return the outputs, and status 0 or the first other status.

    ready, in the result: for each input, False if its outputs belong to a window over time that is not yet full.

    call: as in `run`, with the names of the functions `put` and `take`; `samples`, for each the elements of all inputs;
    `order`, a letter for each call: `p` puts the next sample, `t` takes the outputs of the oldest sample.
    """
    library = _loaded["library"]
    put, take = getattr(library, call["put"]), getattr(library, call["take"])
    put.restype = take.restype = ctypes.c_int32
    samples: list[list[Array]] = call["samples"]
    results = [[np.zeros(out["num_elements"], out["dtype"]) for out in call["outputs"]] for _ in samples]
    threads = [
        threading.Thread(target=_serve_times, args=(library, name, len(samples)), daemon=True)
        for name in call["servers"]
    ]
    for thread in threads:
        thread.start()
    done, ready = {"p": 0, "t": 0}, list[bool]()
    for letter in call["order"]:
        arrays = (*samples[done["p"]], *results[done["p"]]) if letter == "p" else results[done["t"]]
        if call["io"] == "caller":
            pointers = [ctypes.c_void_p(array.ctypes.data) for array in arrays] if letter == "p" else []
            status = put(*pointers) if letter == "p" else take()
        elif letter == "p":
            for port, array in zip(call["inputs"], arrays, strict=False):
                ctypes.memmove(_address(library, port["symbol"], ""), array.ctypes.data, array.nbytes)
            status = put()
        else:
            status = take()
            for port, array in zip(call["outputs"], arrays, strict=True):
                ctypes.memmove(array.ctypes.data, _address(library, port["symbol"], ""), array.nbytes)
        if letter == "t":
            ready.append(status != NOT_READY)
        if status != 0 and not (letter == "t" and status == NOT_READY and call["warms_up"]):
            return {"status": status, "outputs": [], "ready": []}
        done[letter] += 1
    for thread in threads:
        thread.join()
    return {"status": 0, "outputs": results[: done["t"]], "ready": ready}


def _serve_times(library: ctypes.CDLL, symbol: str, count: int) -> None:
    """Run the function of another processor for a number of inputs."""
    function = getattr(library, symbol)
    function.restype = None
    for _ in range(count):
        function()


def _serve(library: ctypes.CDLL, symbols: list[str]) -> None:
    """Start a thread for each function. A thread that still waits, because the last run did not begin, is reused."""
    for symbol in symbols:
        if symbol not in _serving:
            function = getattr(library, symbol)
            function.restype = None
            _serving[symbol] = threading.Thread(target=function, daemon=True)
            _serving[symbol].start()


def _join(symbols: list[str]) -> None:
    """Wait until the functions have returned."""
    for symbol in symbols:
        _serving.pop(symbol).join()


def _handed_in(instance: str) -> list[ctypes.c_void_p]:
    """Return the instance argument of a C function, aligned; an empty list for a model without instances."""
    if not instance:
        return []
    begin = int(_instances[instance].ctypes.data)
    return [ctypes.c_void_p(-(-begin // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES)]


def _address(library: ctypes.CDLL, symbol: str, instance: str) -> int:
    """Return the address that an accessor function of the library returns."""
    accessor = getattr(library, symbol)
    accessor.restype = ctypes.c_void_p
    return accessor(*_handed_in(instance))


def _io_struct(inputs: list[dict[str, Value]], outputs: list[dict[str, Value]]) -> tuple[ctypes.Structure, list[Any]]:
    """Return the C struct of row callbacks, and the callbacks, which must stay referenced during the run."""
    fields: list[tuple[str, Any]] = [("context", ctypes.c_void_p)]
    functions: list[Any] = []
    for direction, ports in (("read", inputs), ("write", outputs)):
        for port in ports:
            if port["strips"]:
                fields.append((f"{direction}_{port['name']}", _STRIP_CALLBACK))
                functions.append(_STRIP_CALLBACK(_hand_over_strips(port)))
            elif port["rows"]:
                fields.append((f"{direction}_{port['name']}", _CALLBACK))
                functions.append(_CALLBACK(_hand_over(direction, port["rows"], port["elements"])))
    struct = type("Io", (ctypes.Structure,), {"_fields_": fields})
    return struct(None, *functions), functions


def _hand_over(direction: str, num_rows: int, elements: Array) -> Callable[[int, int, int, int], int]:
    """Return a callback that copies rows from or to an array of all rows; each row once, in order."""
    row_bytes = elements.nbytes // num_rows
    done = 0

    def hand_over(_context: int, rows: int, row_begin: int, row_end: int) -> int:
        nonlocal done
        if row_begin != done or not row_begin < row_end <= num_rows:
            return OUT_OF_ORDER
        done = row_end
        inside = elements.ctypes.data + row_begin * row_bytes
        target, source = (rows, inside) if direction == "read" else (inside, rows)
        ctypes.memmove(target, source, (row_end - row_begin) * row_bytes)
        return 0

    return hand_over


def _hand_over_strips(port: dict[str, Value]) -> Callable[[int, int, int, int, int, int], int]:
    """Return a callback that copies columns of rows from an array of all rows, strip by strip, in order of the rows.

    port: as in `run`.
    """
    rows_of = port["elements"].view(np.uint8).reshape(port["rows"], port["columns"], -1)
    strips, begun, done = port["strips"], 0, 0

    def hand_over(_context: int, rows: int, row_begin: int, row_end: int, column_begin: int, column_end: int) -> int:
        nonlocal begun, done
        if row_begin == 0:
            begun, done = begun + 1, 0
        asked = [column_begin, column_end]
        if row_begin != done or not row_begin < row_end <= len(rows_of) or begun > len(strips):
            return OUT_OF_ORDER
        if asked != strips[begun - 1]:
            return OUT_OF_ORDER
        done = row_end
        handed = np.ascontiguousarray(rows_of[row_begin:row_end, column_begin:column_end])
        ctypes.memmove(rows, handed.ctypes.data, handed.nbytes)
        return 0

    return hand_over


def _watch(
    library: ctypes.CDLL, watch: dict[str, Value], seen: dict[str, Array], ask: Callable[..., Value] | None
) -> object:
    """Install the hook that the library calls after each step. Return it, because it must stay referenced.

    watch: `hook`, the symbol of the hook's pointer; `arenas`: memory -> symbol and number of bytes; `copied`: for each
    step, the tensors to copy to `seen` after it, as name, memory, offset and number of bytes. ask: takes the step and
    all arenas, and returns the arenas that it changed.
    """
    arenas = {
        memory: np.ctypeslib.as_array((ctypes.c_uint8 * num_bytes).in_dll(library, symbol))
        for memory, (symbol, num_bytes) in watch["arenas"].items()
    }

    def after_step(step: int) -> None:
        for name, memory, offset, num_bytes in watch["copied"][step] if watch["copied"] else ():
            seen[name] = arenas[memory][offset : offset + num_bytes].copy()
        for memory, changed in (ask(step, arenas) if ask else {}).items():
            arenas[memory][:] = changed

    hook = _HOOK(after_step)
    ctypes.c_void_p.in_dll(library, watch["hook"]).value = ctypes.cast(hook, ctypes.c_void_p).value
    return hook
