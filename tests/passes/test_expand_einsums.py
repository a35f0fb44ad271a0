"""ExpandEinsums: products of matrices in the form of einsums become matmuls with the same result."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from relay_passes.dataflow import array_of, bindings, op_name
from relay_passes.simplify.expand_einsums import ExpandEinsums
from tests.passes.modules import module_of
from tests.support.virtual_machine import run

RANDOM = np.random.default_rng(7)
Shape = tuple[int, ...]


def einsum(subscripts: str, *shapes: Shape, constants: tuple[int, ...] = (), dtype: str = "float32") -> tvm.IRModule:
    """An einsum of parameters, or constants at some positions."""
    params = [relax.Var(f"x{place}", relax.TensorType(shape, dtype)) for place, shape in enumerate(shapes)]
    given = [
        relax.const(RANDOM.standard_normal(shape).astype(dtype)) if place in constants else params[place]
        for place, shape in enumerate(shapes)
    ]
    free = [param for place, param in enumerate(params) if place not in constants]
    return module_of(free, lambda builder: relax.op.einsum(tuple(given), subscripts))


def names(mod: tvm.IRModule) -> list[str]:
    return [(op_name(b.value) or "").removeprefix("relax.") for b in bindings(mod["main"])]


PERMUTE, RESHAPE, MATMUL = "permute_dims", "reshape", "matmul"
CASES = {
    "dense": (einsum("bij,jk->bik", (1, 5, 4), (4, 3), constants=(1,)), [MATMUL]),
    "constant first": (einsum("jk,bij->bik", (4, 3), (1, 5, 4), constants=(0,)), [MATMUL]),
    "constant on the left": (
        einsum("mk,bkn->bmn", (6, 4), (2, 4, 3), constants=(0,)), [PERMUTE, MATMUL, PERMUTE]),
    "heads of a projection": (einsum("abc,cde->abde", (1, 5, 4), (4, 2, 3), constants=(1,)), [MATMUL, RESHAPE]),
    "projection of heads": (einsum("abcd,cde->abe", (1, 5, 2, 3), (2, 3, 4), constants=(1,)), [RESHAPE, MATMUL]),
    "scores": (einsum("bihd,bjhd->bhij", (1, 5, 2, 3), (1, 6, 2, 3)), [PERMUTE, PERMUTE, MATMUL]),
    "scores of keys ahead": (einsum("bjhd,bihd->bhij", (1, 6, 2, 3), (1, 5, 2, 3)), [PERMUTE, PERMUTE, MATMUL]),
    "values": (einsum("bhij,bjhd->bihd", (1, 2, 5, 6), (1, 6, 2, 3)), [PERMUTE, MATMUL, PERMUTE]),
    "a vector": (einsum("bij,bj->bi", (2, 5, 4), (2, 4)), [RESHAPE, MATMUL, RESHAPE]),
    "rows of a stack": (einsum("aijk,akm->aijm", (2, 3, 5, 4), (2, 4, 6)), [RESHAPE, MATMUL, RESHAPE]),
    "rows of a single product": (einsum("ijk,km->ijm", (3, 5, 4), (4, 6)), [MATMUL]),
    "ellipsis": (einsum("...ij,...jk", (2, 5, 4), (2, 4, 3)), [MATMUL]),
    "ellipsis in one": (einsum("...ij, jk -> ...ik", (2, 3, 5, 4), (4, 3), constants=(1,)), [MATMUL]),
    "result that is not written": (einsum("ba,cb", (4, 5), (6, 4)), [PERMUTE, PERMUTE, MATMUL]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_product_computes_the_same(case: str) -> None:
    before, wanted = CASES[case]
    after = ExpandEinsums()(before)
    relax.analysis.well_formed(after)
    assert names(after) == wanted
    assert [b.var.name for b in bindings(after["main"])][-1] == [b.var.name for b in bindings(before["main"])][-1]
    arrays = [
        RANDOM.standard_normal([int(extent) for extent in param.ty.shape.values]).astype("f4")
        for param in before["main"].params
    ]
    np.testing.assert_allclose(run(after, *arrays), run(before, *arrays), rtol=1e-5, atol=1e-5)


def test_a_constant_is_the_second_operand_of_the_product() -> None:
    after = ExpandEinsums()(CASES["constant first"][0])
    (product,) = [b.value for b in bindings(after["main"])]
    assert array_of(product.args[0]) is None and array_of(product.args[1]) is not None


@pytest.mark.parametrize(
    "module",
    [
        einsum("ii,ij->ij", (4, 4), (4, 3)),
        einsum("ij,jk,kl->il", (3, 4), (4, 5), (5, 6)),
        einsum("ij->ji", (3, 4)),
        einsum("ij,jk->k", (3, 4), (4, 5)),
        einsum("i,j->ij", (3,), (4,)),
        einsum("bij,jk->bik", (1, 5, 1), (4, 3)),
        einsum("bihd,hde->bihe", (1, 5, 2, 3), (2, 3, 4), constants=(1,)),
        einsum("ij,jk->ik", (3, 4), (4, 5), dtype="int32"),
    ],
    ids=["diagonal", "three", "one", "sum over rows", "outer", "broadcast", "stack of constants", "integers"],
)
def test_others_are_left_alone(module: tvm.IRModule) -> None:
    tvm.ir.assert_structural_equal(ExpandEinsums()(module), module, map_free_vars=True)
