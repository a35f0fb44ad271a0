"""Names of a model as C identifiers."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_ext.core.names import identifier, shared_prefix, unique

MANY = settings(max_examples=400, deadline=None, derandomize=True)


@MANY
@given(st.text(max_size=60))
def test_anything_becomes_an_identifier(text: str) -> None:
    word = identifier(text)
    assert re.fullmatch(r"[a-z][a-z0-9_]*", word) and "__" not in word and len(word) <= 43
    assert identifier(word) in (word, word.rstrip("_")), "a legal name stays"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("conv_1", "conv_1"),
        ("gpu_0/data_0", "gpu_0_data_0"),
        ("StatefulPartitionedCall:0", "statefulpartitionedcall_0"),
        ("3x3", "x_3x3"),
        ("", "x"),
        ("日本", "x"),
        ("İ", "i"),
        ("int", "int_"),
        ("Class", "class_"),
        ("__init__", "init"),
        ("a" * 39 + "/b", "a" * 38 + "_b"),
        ("functional/mobilenet_v2_100/expanded_conv_13/depthwise/conv", "v2_100_expanded_conv_13_depthwise_conv"),
        ("model/conv_7/Relu;model/bn_7/FusedBatchNormV3;model/conv_7/Conv2D", "model_conv_7_relu"),
        ("3" * 50, "x_" + "3" * 38),
    ],
)
def test_examples(text: str, expected: str) -> None:
    assert identifier(text) == expected


@pytest.mark.parametrize(
    "keyword",
    [
        "and",
        "asm",
        "bool",
        "class",
        "const",
        "delete",
        "int",
        "namespace",
        "or",
        "register",
        "restrict",
        "true",
        "typename",
        "xor",
    ],
)
def test_never_a_keyword_of_c_or_cplusplus(keyword: str) -> None:
    assert identifier(keyword) != keyword


def test_a_fallback_begins_what_cannot_begin_by_itself() -> None:
    assert identifier("7", fallback="t") == "t_7" and identifier("%", fallback="t") == "t"


def test_unique_counts_on() -> None:
    taken = {"a"}
    assert [unique("b", taken), unique("a", taken), unique("a", taken), unique("a_2", taken)] == [
        "b", "a_2", "a_3", "a_2_2",
    ]  # fmt: skip
    assert taken == {"a", "b", "a_2", "a_3", "a_2_2"}


@MANY
@given(st.lists(st.sampled_from(["a", "a_2", "a_3", "a_2_2", "b"]), max_size=12))
def test_unique_names_differ(words: list[str]) -> None:
    taken: set[str] = set()
    names = [unique(word, taken) for word in words]
    assert len(set(names)) == len(names) and set(names) == taken


def test_an_ending_stays_whole() -> None:
    assert identifier("conv_" + "a" * 60 + ".columns_10_25") == "a" * 26 + "_columns_10_25"
    assert identifier("conv.columns_0_4") == "conv_columns_0_4"


@pytest.mark.parametrize(
    ("names", "prefix"),
    [
        (["net/block_1/conv", "net/block_2/conv", "net/block_2/add"], "net/"),
        (["net.stem.conv", "net.stem.bn", "softmax"], "net.stem."),
        (["net/conv", "net/conv_2", "conv"], ""),
        (["features.0.conv", "features.1.conv"], ""),
        (["a/conv", "b/conv"], ""),
        (["net/conv"], ""),
        (["conv_1", "conv_2"], ""),
        ([], ""),
    ],
    ids=[
        "a network's name", "names without a path", "equal to another name", "numbers", "nothing shared", "one name",
        "no path", "no names",
    ],
)  # fmt: skip
def test_a_prefix_that_layers_share(names: list[str], prefix: str) -> None:
    assert shared_prefix(names) == prefix
