"""A package's library in a process of its own: load it, run it, look into its arenas between steps.

`Child` runs these functions; values go in and come out. The interface was checked against the package's header when
the library was built, so sizes here are those of the C.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from codegen_c.program.interface import NOT_READY, NOT_RESET
from tvm_ext.core.alignment import MOST_ALIGNMENT_BYTES
from tvm_ext.core.errors import BadPackage
from tvm_ext.core.processes.wire import Value

Array = np.ndarray[Any, Any]

OUT_OF_ORDER = 1000
"""Answer of a function that hands over rows, and of the run with it, when it is asked for other rows than the next."""

_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32)
_STRIP_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int32] * 4)
_HOOK = ctypes.CFUNCTYPE(None, ctypes.c_int32)
_ALIGNMENT_BYTES = MOST_ALIGNMENT_BYTES
_loaded: dict[str, ctypes.CDLL] = {}
_serving: dict[str, threading.Thread] = {}
_instances: dict[str, Array] = {}


def load(path: str) -> None:
    """Load the library that `run` runs. Raises BadPackage."""
    try:
        _loaded["library"] = ctypes.CDLL(path)
    except OSError as error:
        raise BadPackage(f"the host library cannot be loaded: {error}.") from None


def hold(instance: str, num_bytes: int) -> None:
    """Make memory for an instance, under a name by which the other functions are told of it."""
    _instances[instance] = np.zeros(num_bytes + _ALIGNMENT_BYTES, np.uint8)


def call(symbol: str, instance: str = "") -> None:
    """Call a function without arguments but the instance."""
    function = getattr(_loaded["library"], symbol)
    function.restype = None
    function(*_handed_in(instance))


def read_bytes(symbol: str, num_bytes: int, instance: str = "") -> bytes:
    """Bytes from where a function points to."""
    return ctypes.string_at(_address(_loaded["library"], symbol, instance), num_bytes)


def write_bytes(symbol: str, data: bytes, instance: str = "") -> None:
    """Put bytes to where a function points to."""
    ctypes.memmove(_address(_loaded["library"], symbol, instance), data, len(data))


def run(call: dict[str, Value], ask: Callable[..., Value] | None = None) -> dict[str, Value]:
    """Status, outputs as flat arrays, and what was copied out on the way.

    call: `symbol` of the run function; `io`; `instance`, empty for none; `inputs` with `symbol` (accessor), `name`,
    `rows`, `strips`, `columns` and `elements`; `outputs` with `num_elements` and `dtype` instead of elements; `watch`,
    or None, as `_watch` reads it; `servers`, functions by which other processors run their parts, here threads.
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
    if status != NOT_RESET:  # behind its last step a run may answer something else than 0
        _join(call["servers"])
    return {"status": status, "outputs": [port["elements"] for port in outputs], "seen": seen}


def run_successive(call: dict[str, Value]) -> dict[str, Value]:
    """Outputs of successive inputs of a pipeline; status: 0, or the first answer that is another.

    ready: of each input, whether its outputs are an answer, and not of a window over time that is not full.

    call: as for `run`, with `put` and `take`, functions; `samples`, for each the elements of all inputs; `order`, a
    letter for each call: `p` puts the next sample, `t` takes the outputs of the oldest one that was put.
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
    """Another processor, for so many inputs."""
    function = getattr(library, symbol)
    function.restype = None
    for _ in range(count):
        function()


def _serve(library: ctypes.CDLL, symbols: list[str]) -> None:
    """Let each function run in a thread; one that still waits, as the last run did not begin, goes on with this one."""
    for symbol in symbols:
        if symbol not in _serving:
            function = getattr(library, symbol)
            function.restype = None
            _serving[symbol] = threading.Thread(target=function, daemon=True)
            _serving[symbol].start()


def _join(symbols: list[str]) -> None:
    """Wait until those functions have returned."""
    for symbol in symbols:
        _serving.pop(symbol).join()


def _handed_in(instance: str) -> list[ctypes.c_void_p]:
    """The first argument of each function of a model whose instances the caller holds."""
    if not instance:
        return []
    begin = int(_instances[instance].ctypes.data)
    return [ctypes.c_void_p(-(-begin // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES)]


def _address(library: ctypes.CDLL, symbol: str, instance: str) -> int:
    accessor = getattr(library, symbol)
    accessor.restype = ctypes.c_void_p
    return accessor(*_handed_in(instance))


def _io_struct(inputs: list[dict[str, Value]], outputs: list[dict[str, Value]]) -> tuple[ctypes.Structure, list[Any]]:
    """The struct of functions that hand over rows, and those functions, which live as long as the list."""
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
    """Copies rows from or to an array that holds all of them; each once, in order."""
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
    """Copies some columns of rows from an array that holds all of them; strip by strip, each row of one once, in order.

    port: as `run` takes it.
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
    """Set the function that runs behind each step, and hold it.

    watch: `hook`, the pointer's symbol; `arenas`: memory -> symbol and number of bytes; `copied`: for each step, what
    goes to `seen` behind it, as name, memory, offset and number of bytes. ask gets the step and all arenas, and answers
    those it changed.
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
