"""concat and gather: C against numpy byte for byte, whole, by rows and in rings of rows; C text that moves runs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen_c.kernels.contract import Copy, Refusal, StoredRows
from codegen_c.kernels.movement import concat, gather
from codegen_c.operators.kinds import Concat, Gather, TensorType
from tests.kernels.harness import HOST
from tests.kernels.quantized import FEW, assert_c_equals_reference, seeds

DTYPES = ("int8", "uint8", "float32", "int64")
SHAPES = ((1, 5, 4, 3), (1, 6, 1, 2), (2, 3, 2, 5), (7, 4), (9,), (1, 3, 4))


def array(tensor: TensorType, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 120, tensor.shape).astype(tensor.dtype)


@st.composite
def concats(draw: st.DrawFn) -> Concat:
    shape, dtype = draw(st.sampled_from(SHAPES)), draw(st.sampled_from(DTYPES))
    axis = draw(st.integers(0, len(shape) - 1))
    extents = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    shapes = [(*shape[:axis], extent, *shape[axis + 1 :]) for extent in (*extents, sum(extents))]
    *parts, output = (TensorType(shape=s, dtype=dtype) for s in shapes)
    known = draw(st.sets(st.integers(0, len(parts) - 1), max_size=len(parts) - 1))
    constants = {i: array(parts[i], seed=50 + i) for i in sorted(known)}
    inputs = tuple(part for i, part in enumerate(parts) if i not in known)
    return Concat(inputs=inputs, outputs=(output,), axis=axis, constants=constants)


@st.composite
def places(draw: st.DrawFn, extent: int) -> np.ndarray:
    """Source indices of an axis: sliced, repeated, in any order; with some outside at either end."""
    inside = draw(
        st.sampled_from((np.arange(extent), np.arange(extent) // 2, np.arange(2 * extent) // 2, np.arange(extent)[::2]))
        | st.lists(st.integers(0, extent - 1), min_size=1, max_size=6).map(np.array)
    )
    before, after = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    return np.pad(inside, (before, after), constant_values=-1) if draw(st.booleans()) else inside


@st.composite
def gathers(draw: st.DrawFn) -> Gather:
    shape, dtype = draw(st.sampled_from(SHAPES)), draw(st.sampled_from(DTYPES))
    taken = tuple(np.array([0]) if extent == 1 and draw(st.booleans()) else draw(places(extent)) for extent in shape)
    output = TensorType(shape=tuple(len(axis) for axis in taken), dtype=dtype)
    return Gather(
        inputs=(TensorType(shape=shape, dtype=dtype),), outputs=(output,), places=taken,
        value=draw(st.sampled_from((0.0, 1.0, 7.0))),
    )  # fmt: skip


@FEW
@given(st.lists(concats(), min_size=1, max_size=8), seeds)
def test_concats(operators: list[Concat], seed: int) -> None:
    inputs = [[array(t, seed + i) for i, t in enumerate(operator.inputs)] for operator in operators]
    results = assert_c_equals_reference(list(operators), inputs, concat.KERNEL)
    for operator, arrays, result in zip(operators, inputs, results, strict=True):
        left = iter(arrays)
        count = len(arrays) + len(operator.constants)
        parts = [operator.constants[i] if i in operator.constants else next(left) for i in range(count)]
        np.testing.assert_array_equal(result, np.concatenate(parts, operator.axis))


@FEW
@given(st.lists(gathers(), min_size=1, max_size=8), seeds)
def test_gathers(operators: list[Gather], seed: int) -> None:
    inputs = [[array(operator.inputs[0], seed)] for operator in operators]
    results = assert_c_equals_reference(list(operators), inputs, gather.KERNEL)
    for operator, (x,), result in zip(operators, inputs, results, strict=True):
        expected = np.full(operator.output.shape, operator.value, x.dtype)
        for at in np.ndindex(*operator.output.shape):
            source = tuple(int(axis[i]) for axis, i in zip(operator.places, at, strict=True))
            if min(source) >= 0:
                expected[at] = x[source]
        np.testing.assert_array_equal(result, expected)


def test_padding_is_two_fills_and_one_copy_a_row() -> None:
    shape = (1, 4, 5, 3)
    taken = tuple(np.pad(np.arange(n), p, constant_values=-1) for n, p in zip(shape, (0, 1, 2, 0), strict=True))
    operator = Gather(
        inputs=(TensorType(shape=shape, dtype="int8"),),
        outputs=(TensorType(shape=(1, 6, 9, 3), dtype="int8"),),
        places=taken,
        value=-7.0,
    )
    text = gather.KERNEL.implement(operator, HOST, StoredRows()).function.body
    assert text.count("memcpy") == 1 and text.count("memset") == 4 and text.count("for (") == 1


@pytest.mark.parametrize("taken", [np.array([-1, -1]), np.array([0, -1, 1])])
def test_refuses_what_lies_outside_in_the_middle(taken: np.ndarray) -> None:
    kind = TensorType(shape=(2,), dtype="int8")
    output = TensorType(shape=taken.shape, dtype="int8")
    refusal = gather.KERNEL.refuses(Gather(inputs=(kind,), outputs=(output,), places=(taken,)), HOST)
    assert isinstance(refusal, Refusal) and "before and after" in refusal.reason


IMAGE = (1, 4, 5, 3)


@pytest.mark.parametrize(
    ("places", "run"),
    [
        (([0], range(4), range(5), range(3)), (0, 60)),
        (([0], range(1, 3), range(5), range(3)), (15, 30)),
        (([0], [2], range(1, 4), range(3)), (33, 9)),
        (([0], [3], [4], [1, 2]), (58, 2)),
        (([0], [2], [3], [1]), (40, 1)),
        (([0], [1, 2], range(4), range(3)), None),  # of each row a part only
        (([0], range(4), range(5), [1]), None),  # one channel of many pixels
        (([0], range(4), [0, 2, 4], range(3)), None),
        (([0], [1, 0], range(5), range(3)), None),
        (([0], [1, 1], range(5), range(3)), None),
        (([0], [-1, 0, 1], range(5), range(3)), None),
        (([0], [2, 3, -1], range(5), range(3)), None),
    ],
)
def test_what_is_one_run_of_the_input_says_so(
    places: tuple[list[int] | range, ...], run: tuple[int, int] | None
) -> None:
    """Views save exactly these copies: the output is those elements of the input, in their order."""
    taken = tuple(np.array(axis) for axis in places)
    operator = Gather(
        inputs=(TensorType(shape=IMAGE, dtype="int8"),),
        outputs=(TensorType(shape=tuple(len(axis) for axis in taken), dtype="int8"),),
        places=taken,
    )
    copies = gather.KERNEL.implement(operator, HOST, StoredRows()).copies
    if run is None:
        assert copies == ()
        return
    first, count = run
    assert copies == (Copy(input=0, source_first=first, target_first=0, count=count),)
    x = np.arange(60, dtype=np.int8).reshape(IMAGE)
    np.testing.assert_array_equal(gather.reference(operator, [x])[0].reshape(-1), x.reshape(-1)[first : first + count])


@FEW
@given(gathers())
def test_copies_are_what_the_reference_computes(operator: Gather) -> None:
    """Both ways: a run that is said is one, and one that is there is said, but where it is filled or repeated."""
    size = int(np.prod(operator.inputs[0].shape))
    x = np.arange(size).reshape(operator.inputs[0].shape)
    inside = all((axis >= 0).all() for axis in operator.places)
    result = gather.reference(operator, [x])[0].reshape(-1)
    copies = gather.KERNEL.implement(operator, HOST, StoredRows()).copies
    assert bool(copies) == bool(inside and (np.diff(result) == 1).all())
    for copy in copies:
        np.testing.assert_array_equal(result, np.arange(copy.source_first, copy.source_first + copy.count))
