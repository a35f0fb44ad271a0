"""The interface of a package to the firmware that calls it: functions, ports, status codes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codegen_c.c_text.text import C_TYPES
from codegen_c.operators.kinds import Quantization, Rounding
from tvm_ext.core.alignment import ALIGNMENT_BYTES
from tvm_ext.core.options import Context, Io


@dataclass(frozen=True, kw_only=True)
class StreamedPort:
    """The way a tensor is handed over: in `rows` rows, of which `rows_kept` are held at a time.

    rows_per_call: most rows that are handed over together. layout: axes of the model's tensor in the order that its
    elements come in, rows first ((0, 2, 3, 1): an NCHW image, pixel by pixel). asked_at: first row of each place in the
    code that hands rows over, which the self-test lets fail one by one.
    strips: of an input whose rows are asked for more than once, columns [begin, end) of them that are asked for each
    time, in order; none where all of them come once. asked_in: strip of each place of asked_at.
    """

    rows: int
    rows_kept: int
    rows_per_call: int
    layout: tuple[int, ...]
    asked_at: tuple[int, ...] = (0,)
    strips: tuple[tuple[int, int], ...] = ()
    asked_in: tuple[int, ...] = (0,)


@dataclass(frozen=True, kw_only=True)
class Port:
    """One input or output.

    name: C identifier. source: the model's own name. dtype: numpy's name of it, a key of C_TYPES. layout: of an image
    or sequence, a letter for each axis, as NHWC; empty where the model says nothing about its axes. stream: where it is
    streamed; None also for an input that nothing reads. taken_as: of an input in another form than the model's, what
    the model takes of a `value`; empty where that is the value.
    """

    name: str
    source: str
    shape: tuple[int, ...]
    dtype: str
    quantization: Quantization | None = None
    layout: str = ""
    stream: StreamedPort | None = None
    taken_as: str = ""

    @property
    def num_elements(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def num_bytes(self) -> int:
        return self.num_elements * np.dtype(self.dtype).itemsize

    @property
    def c_type(self) -> str:
        return C_TYPES[self.dtype]

    @property
    def num_columns(self) -> int:
        """Columns of an input that is asked for in strips."""
        assert self.stream is not None and self.stream.strips, "it is asked for in strips"
        return self.shape[self.stream.layout[2]]

    def handed_over(self, array: np.ndarray) -> np.ndarray:
        """The model's array with its elements in the order in which the generated code takes or gives them."""
        return np.asarray(array.transpose(self.stream.layout), order="C") if self.stream else array

    def taken_back(self, elements: np.ndarray) -> np.ndarray:
        """The model's array from elements in that order, of any shape."""
        if self.stream is None:
            return elements.reshape(self.shape)
        layout = self.stream.layout
        turned = elements.reshape([self.shape[axis] for axis in layout])
        return np.asarray(turned.transpose(np.argsort(layout).astype(int).tolist()), order="C")


@dataclass(frozen=True, kw_only=True)
class KeptValue:
    """A value inside the model that stays readable after a run: its place, and its elements as they are stored.

    port: its names, stored shape and type. layout: axes of the model's tensor in that order, empty where both are the
    same. rows, rows_stored: of a tensor that is made and used row by row, how many rows it has and how many of them
    stay, the last ones; None where it is whole. pitch: elements from one pixel to the next, None where they lie behind
    each other.
    """

    port: Port
    layout: tuple[int, ...]
    memory: str
    offset: int
    num_bytes: int
    rows: int | None = None
    rows_stored: int | None = None
    pitch: int | None = None


@dataclass(frozen=True, kw_only=True)
class Interface:
    """The public API of a package. `model` prefixes every name of it.

    A run answers a `<model>_status`, an enumeration as wide as int32_t, `<model>_ok` where it is done.
    io `arena`: `T *<model>_<input>(void)`, `const T *<model>_<output>(void)`, `<model>_status <model>_run(void)`. A
    single input has the name `<model>_input` beside its own, a single output `<model>_output`.
    io `caller`: `<model>_status <model>_run(const T *input, ..., T *output, ...)`, inputs first.
    io `stream`: `<model>_status <model>_run(const <model>_io *io)`, a struct of functions `read_<input>`,
    `write_<output>`.
    A function `read_<input>` of an input in strips is given the columns, too, that are asked for.
    state_bytes: of what runs keep, 0 where they keep nothing; then there is no `void <model>_reset(void)`.
    warm_up_runs: runs behind a reset that answer `<model>_not_ready`, while a window of time is not full.
    context `caller`: each function takes a `<model>_context *` first, a block of `context_bytes` with arena and state.
    servers: processors beside the caller's, each of which runs its part of a run in `void <model>_serve_<name>(void)`.
    in_flight: inputs that a pipeline works on at once, by `<model>_status <model>_put(...)`, of the same arguments as
    `run`, and `<model>_status <model>_take(void)`; 1 where there are neither.
    has_hooks: whether `<model>_profile.h` has hooks around its layers.
    rounding: of halves where real numbers become integers, to even numbers ("onnx") or away from zero ("tflite").
    kept: values inside the model, whose places `const T *<model>_kept_<value>(void)` gives.
    labels: names of the classes, which `const char *const <model>_labels[]` holds.
    """

    model: str
    io: Io
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    state_bytes: int = 0
    warm_up_runs: int = 0
    context: Context = "static"
    context_bytes: int = 0
    context_alignment_bytes: int = ALIGNMENT_BYTES
    servers: tuple[str, ...] = ()
    in_flight: int = 1
    has_hooks: bool = False
    kept: tuple[KeptValue, ...] = ()
    rounding: Rounding = "onnx"
    labels: tuple[str, ...] = ()

    @property
    def is_pipeline(self) -> bool:
        """True where an input can be put before the outputs of the one before are taken."""
        return self.in_flight > 1

    @property
    def put(self) -> str:
        return f"{self.model}_put"

    @property
    def take(self) -> str:
        return f"{self.model}_take"

    @property
    def full(self) -> str:
        """Name of the answer of `put` where outputs have to be taken first."""
        return f"{self.model}_full"

    @property
    def empty(self) -> str:
        """Name of the answer of `take` where no input was put."""
        return f"{self.model}_empty"

    @property
    def in_flight_name(self) -> str:
        return f"{self.model}_in_flight"

    def serve(self, processor: str) -> str:
        """Name of the C function by which a processor runs its part of a run."""
        return f"{self.model}_serve_{processor}"

    def accessor(self, port: Port) -> str:
        """Name of the C function that gives a port's place in the arena."""
        return f"{self.model}_{port.name}"

    def plain_accessors(self) -> dict[str, Port]:
        """The port of `<model>_input`, where there is one input, and of `<model>_output`, where there is one output.

        A name that a port has itself is left to it, and so is that of a value that is kept.
        """
        if self.io != "arena":
            return {}
        sides = {"input": self.inputs, "output": self.outputs}
        taken = {*map(self.accessor, (*self.inputs, *self.outputs)), *map(self.kept_accessor, self.kept)}
        named = {f"{self.model}_{side}": ports[0] for side, ports in sides.items() if len(ports) == 1}
        return {name: port for name, port in named.items() if name not in taken}

    def quantize(self, port: Port) -> str:
        """Name of the C function that makes an integer of a quantized port of a real number."""
        return self._apart(f"{self.model}_quantize_{port.name}")

    def dequantize(self, port: Port) -> str:
        """Name of the C function that gives the real number for which an integer of a quantized port stands."""
        return self._apart(f"{self.model}_dequantize_{port.name}")

    @property
    def nearest(self) -> str:
        """Name of the C function that these share."""
        return self._apart(f"{self.model}_nearest_steps")

    def _apart(self, name: str) -> str:
        """The name, or one close to it where it is the accessor of a port whose name begins with the same word."""
        taken = {self.accessor(port) for port in (*self.inputs, *self.outputs)}
        while name in taken:
            name = f"{name}_"
        return name

    def kept_accessor(self, value: KeptValue) -> str:
        """Name of the C function that gives the place of a value that is kept."""
        return f"{self.model}_kept_{value.port.name}"

    def port_macro(self, port: Port, what: str) -> str:
        """Name of the C macro that holds a fact about a port, `SHAPE` or the like."""
        return f"{self.model}_{port.name}_{what}".upper()

    def arena_bytes_macro(self, memory: str = "") -> str:
        """Name of the C macro that holds bytes of arenas and states, of one memory or of all."""
        return f"{self.model}_arena_bytes{f'_{memory}' if memory else ''}".upper()

    @property
    def labels_name(self) -> str:
        """Name of the C table of names of classes."""
        return f"{self.model}_labels"

    @property
    def num_labels_macro(self) -> str:
        """Name of the C macro that holds how many there are."""
        return f"{self.model}_num_labels".upper()

    @property
    def sha256_macro(self) -> str:
        """Name of the C macro that holds the digest of the model's file, as a string."""
        return f"{self.model}_model_sha256".upper()

    @property
    def status_type(self) -> str:
        """Name of the type of a run's answers."""
        return f"{self.model}_status"

    @property
    def ok(self) -> str:
        """Name of the answer of a function that did all that it should."""
        return f"{self.model}_ok"

    def as_status(self, value: str) -> str:
        """C expression of an int32_t, such as the answer of the application's function, as an answer of a run."""
        return f"({self.status_type}){value}"

    def size_macro(self, port: Port) -> str:
        """Name of the C macro that holds a port's number of elements."""
        return self.port_macro(port, "SIZE")

    def rows_macro(self, port: Port) -> str:
        """Name of the C macro that holds the number of rows a port is streamed in."""
        return self.port_macro(port, "ROWS")

    def columns_macro(self, port: Port) -> str:
        """Name of the C macro that holds the number of columns of an input that is asked for in strips."""
        return self.port_macro(port, "COLUMNS")

    def row_macro(self, port: Port) -> str:
        """Name of the C macro that holds the number of elements of such a row."""
        return self.port_macro(port, "ROW_SIZE")

    @property
    def holds_context(self) -> bool:
        """True where the caller holds arenas and states."""
        return self.context == "caller"

    @property
    def context_type(self) -> str:
        """Name of the type of an instance, as callers see it."""
        return f"{self.model}_context"

    @property
    def context_bytes_name(self) -> str:
        return f"{self.model}_context_bytes"

    @property
    def context_alignment_name(self) -> str:
        return f"{self.model}_context_alignment"

    @property
    def misaligned(self) -> str:
        """Name of the answer of a run where the instance does not lie at a multiple of its alignment."""
        return f"{self.model}_misaligned"

    @property
    def checks_alignment(self) -> bool:
        """True where a run looks at the place of its instance: what C allocates may lie at less than is asked for."""
        return self.holds_context and self.context_alignment_bytes > ALIGNMENT_BYTES

    @property
    def io_struct(self) -> str:
        return f"{self.model}_io"

    @property
    def run(self) -> str:
        return f"{self.model}_run"

    @property
    def reset(self) -> str:
        return f"{self.model}_reset"

    @property
    def state_place(self) -> str:
        return f"{self.model}_state_place"

    @property
    def state_bytes_name(self) -> str:
        return f"{self.model}_state_bytes"

    @property
    def not_reset(self) -> str:
        """Name of the answer of a run whose states were never set."""
        return f"{self.model}_not_reset"

    @property
    def not_ready(self) -> str:
        """Name of the answer of a run whose outputs are no answer yet."""
        return f"{self.model}_not_ready"

    @property
    def warm_up_name(self) -> str:
        return f"{self.model}_warm_up_runs"


NOT_RESET, NOT_READY = -1, -2
"""Of a run: nobody has set its states; its window over time is not full yet."""

MISALIGNED = -3
"""Of a run: the caller's block of memory is not aligned."""

FULL, EMPTY = -3, -4
"""Of a pipeline: it takes no input before outputs are taken; it has no output under way."""
