"""The interface of a package to the firmware that calls it: functions, ports and status codes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codegen_c.c_text.text import C_TYPES
from codegen_c.operators.kinds import Quantization, Rounding
from tvm_ext.core.alignment import ALIGNMENT_BYTES
from tvm_ext.core.options import Context, Io


@dataclass(frozen=True, kw_only=True)
class StreamedPort:
    """How a tensor is streamed: in `rows` rows, of which `rows_kept` are stored at a time.

    rows_per_call: most rows that one call hands over. layout: axes of the model's tensor in the order of the streamed
    elements, rows first ((0, 2, 3, 1): an NCHW image, pixel by pixel). asked_at: first row of each place in the code
    that hands over rows; the self-test lets each place fail once. strips: for an input whose rows are read several
    times, the columns [begin, end) of each time, in order; empty if all columns are read once. asked_in: index of the
    strip for each place of asked_at.
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
    """An input or output.

    name: C identifier. source: the model's own name. dtype: numpy's name, a key of C_TYPES. layout: for an image or
    sequence, a letter for each axis, such as NHWC; empty if the model does not define its axes. stream: how it is
    streamed; None if it is not streamed, and for an input that nothing reads. taken_as: for an input in another form
    than the model's, an expression of `value` that the model gets; empty if the model gets the value itself.
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
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def num_bytes(self) -> int:
        """Size in bytes."""
        return self.num_elements * np.dtype(self.dtype).itemsize

    @property
    def c_type(self) -> str:
        """C type of an element."""
        return C_TYPES[self.dtype]

    @property
    def num_columns(self) -> int:
        """Number of columns of an input that is read in strips."""
        assert self.stream is not None and self.stream.strips, "it is asked for in strips"
        return self.shape[self.stream.layout[2]]

    def handed_over(self, array: np.ndarray) -> np.ndarray:
        """Return the model's array with its elements in the order in which the generated code streams them."""
        return np.asarray(array.transpose(self.stream.layout), order="C") if self.stream else array

    def taken_back(self, elements: np.ndarray) -> np.ndarray:
        """Return the model's array from elements in streamed order, in any shape."""
        if self.stream is None:
            return elements.reshape(self.shape)
        layout = self.stream.layout
        turned = elements.reshape([self.shape[axis] for axis in layout])
        return np.asarray(turned.transpose(np.argsort(layout).astype(int).tolist()), order="C")


@dataclass(frozen=True, kw_only=True)
class KeptValue:
    """A value inside the model that stays readable after a run: its memory and offset, and how its elements are stored.

    port: names, stored shape and type. layout: axes of the model's tensor in stored order, empty if both are the same.
    rows, rows_stored: for a tensor that is computed row by row, its number of rows and how many of the last rows are
    stored; None for a whole tensor. pitch: elements from one pixel to the next, None if pixels are contiguous.
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
    """The public API of a package. Every name in it has the prefix `model`.

    A run returns a `<model>_status`, an enumeration of the size of int32_t; `<model>_ok` means success.
    io `arena`: `T *<model>_<input>(void)`, `const T *<model>_<output>(void)`, `<model>_status <model>_run(void)`. A
    single input also has the name `<model>_input`, and a single output `<model>_output`.
    io `caller`: `<model>_status <model>_run(const T *input, ..., T *output, ...)`, inputs first.
    io `stream`: `<model>_status <model>_run(const <model>_io *io)`, a struct of functions `read_<input>`,
    `write_<output>`. The function `read_<input>` of an input in strips also gets the range of columns.
    state_bytes: size of the states; if 0, there is no `void <model>_reset(void)`.
    warm_up_runs: runs after a reset that return `<model>_not_ready`, because a window over time is not full.
    context `caller`: each function takes a `<model>_context *` first, a block of `context_bytes` with arena and state.
    servers: processors other than the caller's; each runs its part of a run in `void <model>_serve_<name>(void)`.
    in_flight: inputs that a pipeline works on at once. Then `<model>_status <model>_put(...)` with the arguments of
    `run` and `<model>_status <model>_take(void)` replace it; 1 without a pipeline.
    has_hooks: True if `<model>_profile.h` has hooks around the layers.
    rounding: rounding of halves when real numbers become integers: to even ("onnx") or away from zero ("tflite").
    kept: values inside the model, which `const T *<model>_kept_<value>(void)` returns.
    labels: names of the classes, in `const char *const <model>_labels[]`.
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
        """True if an input can be put before the outputs of the previous input are taken."""
        return self.in_flight > 1

    @property
    def put(self) -> str:
        """Name of the C function that puts an input into a pipeline."""
        return f"{self.model}_put"

    @property
    def take(self) -> str:
        """Name of the C function that takes outputs from a pipeline."""
        return f"{self.model}_take"

    @property
    def full(self) -> str:
        """Name of the status of `put` if outputs must be taken first."""
        return f"{self.model}_full"

    @property
    def empty(self) -> str:
        """Name of the status of `take` if no input was put."""
        return f"{self.model}_empty"

    @property
    def in_flight_name(self) -> str:
        """Name of the C constant with the most inputs in flight."""
        return f"{self.model}_in_flight"

    def serve(self, processor: str) -> str:
        """Return the name of the C function in which a processor runs its part of a run."""
        return f"{self.model}_serve_{processor}"

    def accessor(self, port: Port) -> str:
        """Return the name of the C function that returns a port's address in the arena."""
        return f"{self.model}_{port.name}"

    def plain_accessors(self) -> dict[str, Port]:
        """Return the port of `<model>_input` if there is one input, and of `<model>_output` if there is one output.

        A name that a port or a kept value already has is not used.
        """
        if self.io != "arena":
            return {}
        sides = {"input": self.inputs, "output": self.outputs}
        taken = {*map(self.accessor, (*self.inputs, *self.outputs)), *map(self.kept_accessor, self.kept)}
        named = {f"{self.model}_{side}": ports[0] for side, ports in sides.items() if len(ports) == 1}
        return {name: port for name, port in named.items() if name not in taken}

    def quantize(self, port: Port) -> str:
        """Return the name of the C function that converts a real number to an integer of a quantized port."""
        return self._apart(f"{self.model}_quantize_{port.name}")

    def dequantize(self, port: Port) -> str:
        """Return the name of the C function that converts an integer of a quantized port to a real number."""
        return self._apart(f"{self.model}_dequantize_{port.name}")

    @property
    def nearest(self) -> str:
        """Name of the C function that the quantize functions share."""
        return self._apart(f"{self.model}_nearest_steps")

    def _apart(self, name: str) -> str:
        """Return the name, with underscores appended if it is the accessor of a port."""
        taken = {self.accessor(port) for port in (*self.inputs, *self.outputs)}
        while name in taken:
            name = f"{name}_"
        return name

    def kept_accessor(self, value: KeptValue) -> str:
        """Return the name of the C function that returns the address of a kept value."""
        return f"{self.model}_kept_{value.port.name}"

    def port_macro(self, port: Port, what: str) -> str:
        """Return the name of the C macro of a property of a port, such as `SHAPE`."""
        return f"{self.model}_{port.name}_{what}".upper()

    def arena_bytes_macro(self, memory: str = "") -> str:
        """Return the name of the C macro with the bytes of arenas and states, in one memory or in all."""
        return f"{self.model}_arena_bytes{f'_{memory}' if memory else ''}".upper()

    @property
    def labels_name(self) -> str:
        """Name of the C table of class names."""
        return f"{self.model}_labels"

    @property
    def num_labels_macro(self) -> str:
        """Name of the C macro with the number of class names."""
        return f"{self.model}_num_labels".upper()

    @property
    def sha256_macro(self) -> str:
        """Name of the C macro with the digest of the model's file, a string."""
        return f"{self.model}_model_sha256".upper()

    @property
    def status_type(self) -> str:
        """Name of the C type of a run's status."""
        return f"{self.model}_status"

    @property
    def ok(self) -> str:
        """Name of the status of a successful function."""
        return f"{self.model}_ok"

    def as_status(self, value: str) -> str:
        """Return the C expression that converts an int32_t, such as the application's result, to a status."""
        return f"({self.status_type}){value}"

    def size_macro(self, port: Port) -> str:
        """Return the name of the C macro with a port's number of elements."""
        return self.port_macro(port, "SIZE")

    def rows_macro(self, port: Port) -> str:
        """Return the name of the C macro with the number of rows in which a port is streamed."""
        return self.port_macro(port, "ROWS")

    def columns_macro(self, port: Port) -> str:
        """Return the name of the C macro with the number of columns of an input that is read in strips."""
        return self.port_macro(port, "COLUMNS")

    def row_macro(self, port: Port) -> str:
        """Return the name of the C macro with the number of elements of a row of the port."""
        return self.port_macro(port, "ROW_SIZE")

    @property
    def holds_context(self) -> bool:
        """True if the caller provides the memory of arenas and states."""
        return self.context == "caller"

    @property
    def context_type(self) -> str:
        """Name of the C type of an instance."""
        return f"{self.model}_context"

    @property
    def context_bytes_name(self) -> str:
        """Name of the C constant with the size of an instance."""
        return f"{self.model}_context_bytes"

    @property
    def context_alignment_name(self) -> str:
        """Name of the C constant with the alignment of an instance."""
        return f"{self.model}_context_alignment"

    @property
    def misaligned(self) -> str:
        """Name of the status of a run whose instance is not aligned."""
        return f"{self.model}_misaligned"

    @property
    def checks_alignment(self) -> bool:
        """True if a run checks the alignment of its instance, because allocated memory may be aligned less."""
        return self.holds_context and self.context_alignment_bytes > ALIGNMENT_BYTES

    @property
    def io_struct(self) -> str:
        """Name of the C structure of stream functions."""
        return f"{self.model}_io"

    @property
    def run(self) -> str:
        """Name of the C function of a run."""
        return f"{self.model}_run"

    @property
    def reset(self) -> str:
        """Name of the C function that resets the states."""
        return f"{self.model}_reset"

    @property
    def state_place(self) -> str:
        """Name of the C function that returns the address of the states."""
        return f"{self.model}_state_place"

    @property
    def state_bytes_name(self) -> str:
        """Name of the C constant with the size of the states."""
        return f"{self.model}_state_bytes"

    @property
    def not_reset(self) -> str:
        """Name of the status of a run whose states were never set."""
        return f"{self.model}_not_reset"

    @property
    def not_ready(self) -> str:
        """Name of the status of a run whose outputs are not valid yet."""
        return f"{self.model}_not_ready"

    @property
    def warm_up_name(self) -> str:
        """Name of the C constant with the number of warm-up runs."""
        return f"{self.model}_warm_up_runs"
