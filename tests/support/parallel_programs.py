"""Random programs of every kind of step, whose every result depends on every byte read, and random lists for them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from codegen_c.kernels.contract import CFunction, Implementation, Spatial
from codegen_c.program.program import Program
from codegen_c.program.steps import AffineRow, KernelCall, RowRange, Step, Transfer, Wait
from codegen_c.program.tensors import Part, Tensor
from tvm_ext.core.row_access import RowAccess

PROCESSORS = ("cpu0", "cpu1", "cpu2")


def mixed(name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], scratch_bytes: int = 0) -> KernelCall:
    """A step each of whose bytes depends on all bytes of all inputs."""

    def reference(arrays: list[np.ndarray]) -> list[np.ndarray]:
        weighed = [(array.reshape(-1).astype(np.int64) * np.arange(1, array.size + 1)).sum() for array in arrays]
        total = sum((3 + 2 * number) * int(one) for number, one in enumerate(weighed))
        return [
            ((np.arange(out.num_elements) * 7 + total + 11 * number) % 251).astype(np.uint8).reshape(out.shape)
            for number, out in enumerate(outputs)
        ]

    return _call(name, inputs, outputs, Implementation(
        kernel="mixed", function=_NO_C, reference=reference, scratch_bytes=scratch_bytes,
    ))  # fmt: skip


def in_place(name: str, source: Tensor, output: Tensor) -> KernelCall:
    """A step that may put each element where it found it."""
    return _call(name, [source], [output], Implementation(
        kernel="in_place", function=_NO_C, in_place=(0,),
        reference=lambda arrays: [(arrays[0].reshape(-1) * np.uint8(5) + np.uint8(len(name)))],
    ))  # fmt: skip


def sliding(name: str, source: Tensor, output: Tensor, taps: int, rows: tuple[int, int] | None = None) -> KernelCall:
    """A step that computes each row of uint8[1, H, 1, C] from a window of rows. rows: those that it computes."""
    height = output.shape[1]
    access = RowAccess.sliding(height, height, taps=taps, padding=taps // 2)

    def reference(arrays: list[np.ndarray]) -> list[np.ndarray]:
        image = arrays[0].reshape(height, -1).astype(np.int64)
        windows = zip(access.begins, access.ends, strict=True)
        found = [image[begin:end].sum() + 13 * row for row, (begin, end) in enumerate(windows)]
        return [np.repeat(np.array(found) % 251, output.num_elements // height).astype(np.uint8)]

    made = _call(name, [source], [output], Implementation(
        kernel="sliding", function=_NO_C, reference=reference, spatial=Spatial(output_rows=height, inputs=(access,)),
    ))  # fmt: skip
    if rows is None:
        return made
    return replace(made, rows=RowRange(begin=AffineRow(base=rows[0]), end=AffineRow(base=rows[1])))


def _call(name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], made: Implementation) -> KernelCall:
    return KernelCall(
        name=name, implementation=made, inputs=tuple(t.name for t in inputs), outputs=tuple(t.name for t in outputs),
        input_shapes=tuple(t.shape for t in inputs),
    )  # fmt: skip


_NO_C = CFunction(parameters=(), body="")


@dataclass(kw_only=True)
class _Drawing:
    """A program as far as it was drawn."""

    rng: random.Random
    tensors: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    steps: list[Step] = field(default_factory=list[Step])
    ready: list[str] = field(default_factory=list[str])
    flights: list[Transfer] = field(default_factory=list[Transfer])
    num_flights: int = 0

    def tensor(self, shape: tuple[int, ...], part: Part | None = None, memory: str | None = None) -> Tensor:
        name = f"t{len(self.tensors)}"
        place = memory or self.rng.choice(["ram", "ram", "ram", "fast"])
        self.tensors[name] = Tensor(name=name, source=name, shape=shape, dtype="uint8", memory=place, part=part)
        return self.tensors[name]

    def image(self) -> Tensor:
        return self.tensor((1, self.rng.choice([2, 4, 6]), 1, self.rng.choice([8, 16, 24])))

    def drawn(self, most: int = 3) -> list[Tensor]:
        """Tensors to read, mostly late ones."""
        count = min(self.rng.randint(1, most), len(self.ready))
        late = self.ready[-6:] if self.rng.random() < 0.7 else self.ready
        return [self.tensors[name] for name in self.rng.sample(late, min(count, len(late)))]

    def add(self, step: Step, *made: Tensor) -> None:
        self.steps.append(step)
        self.ready += [tensor.name for tensor in made]

    @property
    def next_name(self) -> str:
        return f"s{len(self.steps)}"

    def step(self) -> None:
        draw, rng = self.drawn, self.rng
        kind = rng.choice("mixed mixed mixed in_place rows whole_rows channels halves copy flight wait".split())
        if kind == "in_place":
            source = draw(1)[0]
            made = self.tensor(source.shape, memory=source.memory)
            self.add(in_place(self.next_name, source, made), made)
        elif kind in ("rows", "whole_rows"):
            images = [tensor for name in self.ready if not (tensor := self.tensors[name]).part]
            source = rng.choice(images[-4:])
            made, taps = self.tensor(source.shape, memory=source.memory), rng.choice([1, 3])
            height = source.shape[1]
            cuts = [0, height] if kind == "whole_rows" else sorted({0, rng.randint(1, height - 1), height})
            for begin, end in pairwise(cuts):
                rows = (begin, end) if kind == "rows" else None
                self.steps.append(sliding(self.next_name, source, made, taps, rows))
            self.ready.append(made.name)
        elif kind in ("channels", "halves"):
            self._joined(by_channels=kind == "channels")
        elif kind == "copy":
            source = draw(1)[0]
            made = self.tensor(source.shape)
            self.add(Transfer(name=self.next_name, source=source.name, target=made.name), made)
        elif kind == "flight":
            source = draw(1)[0]
            made = self.tensor(source.shape)
            flight = Transfer(name=self.next_name, source=source.name, target=made.name, number=self.num_flights)
            self.num_flights += 1
            self.flights.append(flight)
            self.steps.append(flight)
        elif kind == "wait" and self.flights:
            self.wait()
        else:
            made = [self.image() for _ in range(rng.choice([1, 1, 1, 2]))]
            scratch = rng.choice([0, 0, 16, 48, 100])
            self.add(mixed(self.next_name, draw(), made, scratch), *made)

    def wait(self) -> None:
        self.steps.append(Wait(name=self.next_name, transfers=(self.flights[0],)))
        self.ready.append(self.flights.pop(0).target)

    def _joined(self, *, by_channels: bool) -> None:
        """Two steps that make parts of one tensor, side by side or one behind the other."""
        height, first, second = self.rng.choice([2, 4]), self.rng.choice([4, 8, 12]), self.rng.choice([4, 8, 20])
        shape = (1, height, 1, first + second) if by_channels else (1, height, 1, 2 * first)
        whole = self.tensor(shape)
        sizes = (first, second) if by_channels else (first, first)
        for number, size in enumerate(sizes):
            if by_channels:
                part = Part(tensor=whole.name, first=number * first, pitch=first + second)
                made = self.tensor((1, height, 1, size), part, whole.memory)
            else:
                made = self.tensor(
                    (1, height // 2, 1, 2 * first), Part(tensor=whole.name, first=number * height * first), whole.memory
                )
            self.steps.append(mixed(self.next_name, self.drawn(), [made]))
        self.ready.append(whole.name)


def random_program(seed: int, num_steps: int) -> Program:
    """A program of about so many steps: any step may read what any earlier one made."""
    drawing = _Drawing(rng=random.Random(seed))
    inputs = [drawing.image() for _ in range(drawing.rng.choice([1, 1, 2]))]
    drawing.ready += [tensor.name for tensor in inputs]
    while len(drawing.steps) < num_steps:
        drawing.step()
    while drawing.flights:
        drawing.wait()
    outputs = [drawing.tensor((1, 2, 1, 16)) for _ in range(drawing.rng.choice([1, 1, 2]))]
    last = [drawing.tensors[name] for name in drawing.ready[-3:]]
    drawing.add(mixed(drawing.next_name, last, outputs), *outputs)
    return Program(
        name=f"p{seed}", inputs=tuple(t.name for t in inputs), outputs=tuple(t.name for t in outputs),
        tensors=drawing.tensors, steps=tuple(drawing.steps),
    )  # fmt: skip


def random_lists(program: Program, seed: int, num_lists: int) -> dict[str, list[str]]:
    """Lists in the program's order, steps by chance where the one before is. Transfers that go on are in one list."""
    rng = random.Random(seed)
    lists: dict[str, list[str]] = {name: [] for name in PROCESSORS[:num_lists]}
    stay, current, copier = rng.random(), PROCESSORS[0], rng.choice(list(lists))
    for step in program.steps:
        if rng.random() > stay:
            current = rng.choice(list(lists))
        goes_on = isinstance(step, Wait) or (isinstance(step, Transfer) and step.number is not None)
        lists[copier if goes_on else current].append(step.name)
    return lists
