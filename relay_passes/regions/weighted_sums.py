"""Finds interpolations as ExposeInterpolations writes them: weighted sums along one axis, and then along another.

A weighted sum is `take(x, a) * u + take(x, b) * v + ...` with constant indices and constant weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tvm import relax

from relay_passes.dataflow import array_of, op_name

Producers = Mapping[relax.Var, relax.VarBinding]


def interpolations(last: relax.VarBinding, producers: Producers) -> Iterator[list[relax.VarBinding]]:
    """Yield the bindings of the sum that ends with a binding, then those of this sum and of the sums that it reads.

    The first of the bindings is a `take` of the value that is interpolated. Inner results may have other readers.
    """
    members: list[relax.VarBinding] = []
    binding: relax.VarBinding | None = last
    while binding is not None and (added := _weighted_sum(binding, producers)):
        members = [*added, *members]
        yield members
        binding = producers.get(members[0].value.args[0])


def _weighted_sum(last: relax.VarBinding, producers: Producers) -> list[relax.VarBinding]:
    """Return the bindings of a weighted sum, takes first, or an empty list for anything else."""
    sums, products = [last], list[relax.VarBinding]()
    while op_name(sums[-1].value) == "relax.add":
        before, product = (_producer(leaf, producers) for leaf in sums[-1].value.args)
        if before is None or product is None:
            return []
        sums.append(before)
        products.append(product)
    products.append(sums.pop())
    takes = [take for product in products if (take := _weighted_take(product, producers)) is not None]
    if len(takes) < len(products) or len(products) == 1 or len({take.value.args[0] for take in takes}) > 1:
        return []
    return [*takes, *products, *sums]


def _weighted_take(product: relax.VarBinding, producers: Producers) -> relax.VarBinding | None:
    """Return the `take` with constant indices that a product multiplies by a constant, or None."""
    if op_name(product.value) != "relax.multiply" or array_of(product.value.args[1]) is None:
        return None
    take = _producer(product.value.args[0], producers)
    if take is None or op_name(take.value) != "relax.take" or array_of(take.value.args[1]) is None:
        return None
    return take if isinstance(take.value.args[0], relax.Var) else None


def _producer(leaf: relax.Expr, producers: Producers) -> relax.VarBinding | None:
    return producers.get(leaf) if isinstance(leaf, relax.Var) else None
