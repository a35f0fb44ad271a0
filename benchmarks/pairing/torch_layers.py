"""PyTorch modules and functions over windows, channels, matrices: convolutions, pools, norms, resizing, attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.pairing.operator_case import Choice, Input, Operator
from benchmarks.pairing.torch_form import function

_IMAGES = {
    1: ((1, 4, 13), (2, 4, 8), (4, 9)),
    2: ((1, 4, 9, 8), (2, 4, 7, 12), (4, 7, 7), (1, 4, 1, 10)),
    3: ((1, 4, 5, 6, 7), (1, 4, 4, 4, 4)),
}


def _x(choice: Choice) -> list[Input]:
    return [Input(shape=choice["shape"], dtype=choice.get("dtype", "float32"))]


def _module(name: str) -> Callable[..., Any]:
    def make(*arguments: Any, **named: Any) -> Any:
        from torch import nn

        return getattr(nn, name)(*arguments, **named)

    return make


def _given(choice: Choice, names: Sequence[str]) -> dict[str, Any]:
    """Return the chosen values of these names, those that are None left out."""
    return {name: choice[name] for name in names if choice[name] is not None}


def _reach(choice: Choice, axis: int, rank: int) -> bool:
    """True where a window fits into an axis with its padding."""
    pick = lambda value, default: default if value is None else value[axis] if isinstance(value, tuple) else value  # noqa: E731
    kernel, padding = pick(choice["kernel_size"], 1), choice.get("padding")
    if isinstance(padding, str):
        return True
    width, dilation = pick(padding, 0), pick(choice.get("dilation"), 1)
    extent = choice["shape"][-rank:][axis]
    return (kernel - 1) * dilation + 1 <= extent + 2 * width


def _conv(rank: int) -> Operator:
    names = ("stride", "padding", "dilation", "groups", "bias", "padding_mode")

    def call(choice: Choice) -> Any:
        return _module(f"Conv{rank}d")(4, choice["out"], choice["kernel_size"], **_given(choice, names))

    def is_valid(choice: Choice) -> bool:
        if choice["padding"] == "same" and choice["stride"] is not None:
            return False
        if choice["padding_mode"] not in (None, "zeros") and isinstance(choice["padding"], str):
            return False
        return all(_reach(choice, axis, rank) for axis in range(rank))

    pair = lambda a, b: (a, b, a)[:rank] if rank > 1 else a  # noqa: E731
    factors = {
        "shape": list(_IMAGES[rank]),
        "out": [4, 8],
        "kernel_size": [3, 1, 2, pair(3, 2)],
        "stride": [None, 2, pair(1, 2)],
        "padding": [None, 1, "same", "valid", pair(0, 1)],
        "dilation": [None, 2],
        "groups": [None, 2, 4],
        "bias": [None, False],
        "padding_mode": [None, "reflect", "replicate", "circular"],
    }
    return function(f"Conv{rank}d", call, _x, factors, is_valid)


def _conv_transpose(rank: int) -> Operator:
    names = ("stride", "padding", "output_padding", "dilation", "groups", "bias")

    def call(choice: Choice) -> Any:
        return _module(f"ConvTranspose{rank}d")(4, choice["out"], choice["kernel_size"], **_given(choice, names))

    def is_valid(choice: Choice) -> bool:
        return choice["output_padding"] is None or (choice["stride"] == 3 or choice["dilation"] == 2)

    factors = {
        "shape": list(_IMAGES[rank]),
        "out": [4, 8],
        "kernel_size": [3, 2, 4],
        "stride": [None, 2, 3],
        "padding": [None, 1],
        "output_padding": [None, 1],
        "dilation": [None, 2],
        "groups": [None, 2, 4],
        "bias": [None, False],
    }
    return function(f"ConvTranspose{rank}d", call, _x, factors, is_valid)


def _pool(kind: str, rank: int) -> Operator:
    names = ["stride", "padding", "ceil_mode", *(["count_include_pad"] if kind == "Avg" else ["dilation"])]
    if kind == "Avg" and rank > 1:
        names.append("divisor_override")
    if kind == "LP":
        names = ["stride", "ceil_mode"]

    def call(choice: Choice) -> Any:
        extra = (choice["norm_type"],) if kind == "LP" else ()
        module = _module(f"{kind}Pool{rank}d")(*extra, choice["kernel_size"], **_given(choice, names))
        return module

    def is_valid(choice: Choice) -> bool:
        kernel = choice["kernel_size"]
        least = min(kernel) if isinstance(kernel, tuple) else kernel
        padding = choice.get("padding") or 0
        return padding * 2 <= least and all(_reach(choice, axis, rank) for axis in range(rank))

    kernels = [3, 2, 4] if rank == 1 else [3, 2, (3, 2, 2)[:rank], 4]
    factors: dict[str, Any] = {
        "shape": list(_IMAGES[rank]),
        "kernel_size": kernels,
        "stride": [None, 1, 2, 3],
        "ceil_mode": [None, True],
    }
    if kind != "LP":
        factors["padding"] = [None, 1]
    if kind == "Avg":
        factors["count_include_pad"] = [None, False]
        if rank > 1:
            factors["divisor_override"] = [None, 3, 7]
    elif kind == "Max":
        factors["dilation"] = [None, 2]
    else:
        factors["norm_type"] = [1, 2, 3]
    return function(f"{kind}Pool{rank}d", call, _x, factors, is_valid)


def _adaptive(kind: str, rank: int) -> Operator:
    sizes = {1: [1, 3, 4, 5], 2: [1, (1, 1), (3, 2), (4, 4), (None, 2)], 3: [1, (2, 3, 2)]}[rank]

    def call(choice: Choice) -> Any:
        return _module(f"Adaptive{kind}Pool{rank}d")(choice["output_size"])

    return function(f"Adaptive{kind}Pool{rank}d", call, _x, {"shape": list(_IMAGES[rank]), "output_size": sizes})


def _interpolate() -> Operator:
    def call(choice: Choice) -> Any:
        from torch.nn.functional import interpolate

        rank = len(choice["shape"]) - 2
        size, factor = choice["target"]
        named: dict[str, Any] = {"mode": choice["mode"]}
        if size is not None:
            named["size"] = size[:rank]
        else:
            named["scale_factor"] = factor[:rank] if isinstance(factor, tuple) else factor
            named["recompute_scale_factor"] = choice["recompute"]
        if choice["align_corners"] is not None:
            named["align_corners"] = choice["align_corners"]
        if choice["antialias"]:
            named["antialias"] = True
        return lambda image: interpolate(image, **named)

    ranks = {
        "nearest": (1, 2, 3),
        "nearest-exact": (1, 2, 3),
        "linear": (1,),
        "bilinear": (2,),
        "bicubic": (2,),
        "trilinear": (3,),
        "area": (1, 2, 3),
    }

    def is_valid(choice: Choice) -> bool:
        mode, rank = choice["mode"], len(choice["shape"]) - 2
        if rank not in ranks[mode]:
            return False
        if choice["align_corners"] is not None and mode in ("nearest", "nearest-exact", "area"):
            return False
        if choice["recompute"] and choice["target"][0] is not None:
            return False
        return not choice["antialias"] or mode in ("bilinear", "bicubic")

    factors = {
        "shape": [(1, 2, 6, 8), (2, 3, 5, 7), (1, 1, 1, 9), (1, 2, 8), (1, 2, 4, 5, 6)],
        "target": [
            ((7, 5, 9), None),
            ((3, 11, 2), None),
            (None, 2.0),
            (None, (1.7, 0.6, 2.3)),
            (None, 0.5),
            ((12, 16, 8), None),
        ],
        "mode": list(ranks),
        "align_corners": [None, True, False],
        "recompute": [None, True],
        "antialias": [False, True],
    }
    return function("interpolate", call, _x, factors, is_valid)


def _pad() -> Operator:
    def call(choice: Choice) -> Any:
        from torch.nn.functional import pad

        named = {} if choice["value"] is None else {"value": choice["value"]}
        return lambda x: pad(x, choice["pad"], mode=choice["mode"], **named)

    def is_valid(choice: Choice) -> bool:
        mode, axes, rank = choice["mode"], len(choice["pad"]) // 2, len(choice["shape"])
        if mode == "constant":
            return axes <= rank
        if choice["value"] is not None or (axes, rank) not in ((1, 2), (1, 3), (2, 3), (2, 4), (3, 4), (3, 5)):
            return False
        return all(extent > 3 for extent in choice["shape"][-axes:]) and min(choice["pad"]) >= 0

    factors = {
        "shape": [(4, 9), (2, 4, 9), (1, 2, 5, 6), (1, 2, 4, 5, 6)],
        "pad": [(1, 2), (0, 3), (1, 0, 2, 1), (1, -1, 0, 2), (2, 0, 1, 1, 0, 3)],
        "mode": ["constant", "reflect", "replicate", "circular"],
        "value": [None, 1.5],
    }
    return function("pad", call, _x, factors, is_valid)


def _norms() -> list[Operator]:
    def batch(choice: Choice) -> Any:
        import torch

        rank = {2: 1, 3: 1, 4: 2, 5: 3}[len(choice["shape"])]
        module = _module(f"BatchNorm{rank}d")(
            choice["shape"][1], **_given(choice, ("eps", "affine", "track_running_stats"))
        )
        if module.running_mean is not None:
            module.running_mean.copy_(torch.randn(choice["shape"][1]))
            module.running_var.copy_(torch.rand(choice["shape"][1]) + 0.5)
        return module.eval()

    def instance(choice: Choice) -> Any:
        rank = len(choice["shape"]) - 2
        return _module(f"InstanceNorm{rank}d")(choice["shape"][1], **_given(choice, ("eps", "affine")))

    def layer(choice: Choice) -> Any:
        shape = choice["shape"][-choice["axes"] :]
        return _module(choice["kind"])(shape, **_given(choice, ("eps", "elementwise_affine")))

    def group(choice: Choice) -> Any:
        return _module("GroupNorm")(choice["groups"], choice["shape"][1], **_given(choice, ("eps", "affine")))

    shapes = [(1, 4, 5, 6), (2, 4, 7), (1, 4, 3, 4, 5)]
    common: dict[str, Any] = {"eps": [None, 1e-2], "affine": [None, True, False]}
    return [
        function(
            "BatchNorm",
            batch,
            _x,
            {"shape": [*shapes, (3, 4)], **common, "track_running_stats": [None, False]},
            lambda c: len(c["shape"]) > 2 or c["track_running_stats"] is None,
        ),
        function("InstanceNorm", instance, _x, {"shape": shapes, **common}),
        function(
            "LayerNorm",
            layer,
            _x,
            {
                "shape": [*shapes, (3, 4)],
                "axes": [1, 2],
                "kind": ["LayerNorm", "RMSNorm"],
                "eps": [None, 1e-2],
                "elementwise_affine": [None, False],
            },
        ),
        function("GroupNorm", group, _x, {"shape": [*shapes, (3, 4)], "groups": [1, 2, 4], **common}),
    ]


def _matrices() -> list[Operator]:
    def two(choice: Choice) -> list[Input]:
        return [Input(shape=shape) for shape in choice["shapes"]]

    def call(name: str) -> Callable[[Choice], Any]:
        def of(choice: Choice) -> Any:
            import torch

            return getattr(torch, name)

        return of

    def linear(choice: Choice) -> Any:
        return _module("Linear")(choice["shape"][-1], choice["out"], bias=choice["bias"])

    def addmm(choice: Choice) -> Any:
        import torch

        call = torch.addmm if len(choice["shapes"][1]) == 2 else torch.baddbmm
        return lambda c, a, b: call(c, a, b, alpha=choice["alpha"], beta=choice["beta"])

    pairs = [
        ((3, 4), (4, 5)),
        ((2, 3, 4), (4, 5)),
        ((2, 3, 4), (2, 4, 5)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((4,), (4,)),
        ((2, 1, 3, 4), (1, 3, 4, 2)),
    ]
    triples = [
        ((3, 5), (3, 4), (4, 5)),
        ((5,), (3, 4), (4, 5)),
        ((1, 1), (3, 4), (4, 5)),
        ((2, 3, 5), (2, 3, 4), (2, 4, 5)),
        ((3, 1), (3, 4), (4, 5)),
        ((1, 5), (2, 3, 4), (2, 4, 5)),
    ]

    def einsum(choice: Choice) -> Any:
        import torch

        return lambda a, b: torch.einsum(choice["equation"][0], a, b)

    equations = [
        ("ij,jk->ik", (3, 4), (4, 5)),
        ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
        ("i,j->ij", (3,), (4,)),
        ("bhid,bhjd->bhij", (1, 2, 3, 4), (1, 2, 5, 4)),
        ("ij,ij->", (3, 4), (3, 4)),
        ("bchw,oc->bohw", (1, 3, 2, 2), (4, 3)),
        ("nct,cw->nwt", (2, 3, 4), (3, 5)),
        ("...i,ij->...j", (2, 3, 4), (4, 5)),
    ]
    return [
        function("matmul", call("matmul"), two, {"shapes": pairs}),
        function("outer", call("outer"), two, {"shapes": [((3,), (4,)), ((1,), (5,))]}),
        function(
            "Linear", linear, _x, {"shape": [(3, 4), (1, 8), (2, 3, 4), (4,)], "out": [1, 5], "bias": [True, False]}
        ),
        function("addmm", addmm, two, {"shapes": triples, "alpha": [1, 0.5, 2], "beta": [1, 0, -1.5]}),
        function(
            "einsum", einsum, lambda c: [Input(shape=shape) for shape in c["equation"][1:]], {"equation": equations}
        ),
    ]


def _attention() -> Operator:
    def call(choice: Choice) -> Any:
        from torch.nn.functional import scaled_dot_product_attention

        named = {
            "is_causal": choice["is_causal"],
            "scale": choice["scale"],
            "enable_gqa": choice["heads"][0] != choice["heads"][1],
        }
        if choice["mask"]:
            return lambda q, kv, mask: scaled_dot_product_attention(q, kv, kv, attn_mask=mask, **named)
        return lambda q, kv: scaled_dot_product_attention(q, kv, kv, **named)

    def inputs(choice: Choice) -> list[Input]:
        (queries, keys, width), (heads, kv) = choice["size"], choice["heads"]
        found = [Input(shape=(1, heads, queries, width)), Input(shape=(1, kv, keys, width))]
        return [*found, Input(shape=(queries, keys), dtype=choice["mask"])] if choice["mask"] else found

    factors = {
        "size": [(4, 4, 8), (3, 5, 4), (1, 6, 4)],
        "heads": [(2, 2), (1, 1), (4, 2)],
        "is_causal": [False, True],
        "scale": [None, 0.3],
        "mask": ["", "float32"],
    }
    return function("scaled_dot_product_attention", call, inputs, factors, lambda c: not (c["mask"] and c["is_causal"]))


def _recurrent(kind: str) -> Operator:
    def call(choice: Choice) -> Any:
        _steps, _batch, size, hidden = choice["size"]
        named = _given(choice, ("num_layers", "bias", "batch_first", "bidirectional"))
        return _module(kind)(size, hidden, **named)

    def inputs(choice: Choice) -> list[Input]:
        steps, batch, size, _ = choice["size"]
        return [Input(shape=(batch, steps, size) if choice["batch_first"] else (steps, batch, size))]

    factors = {
        "size": [(4, 1, 3, 5), (3, 2, 4, 4), (1, 1, 1, 1)],
        "num_layers": [None, 2],
        "bias": [None, False],
        "batch_first": [None, True],
        "bidirectional": [None, True],
    }
    return function(kind, call, inputs, factors)


def _attention_module() -> Operator:
    def call(choice: Choice) -> Any:
        module = _module("MultiheadAttention")(
            8, choice["heads"], bias=choice["bias"], batch_first=choice["batch_first"]
        )
        return lambda x: module.eval()(x, x, x, need_weights=choice["need_weights"])[0]

    factors = {
        "shape": [(2, 5, 8), (1, 1, 8), (4, 8)],
        "heads": [1, 2, 4],
        "bias": [True, False],
        "batch_first": [True, False],
        "need_weights": [True, False],
    }
    return function("MultiheadAttention", call, _x, factors)


def _embedding() -> Operator:
    def call(choice: Choice) -> Any:
        return _module("Embedding")(7, choice["width"], padding_idx=choice["padding_idx"])

    def inputs(choice: Choice) -> list[Input]:
        return [Input(shape=choice["shape"], dtype=choice["dtype"], low=0, high=7)]

    factors = {"shape": [(3,), (2, 4), ()], "width": [1, 5], "padding_idx": [None, 2], "dtype": ["int64", "int32"]}
    return function("Embedding", call, inputs, factors)


def _shuffles() -> list[Operator]:
    def call(name: str) -> Callable[[Choice], Any]:
        return lambda choice: _module(name)(choice["factor"])

    return [
        function(
            "PixelShuffle", call("PixelShuffle"), _x, {"shape": [(1, 36, 3, 4), (2, 36, 1, 1)], "factor": [1, 2, 3]}
        ),
        function(
            "PixelUnshuffle", call("PixelUnshuffle"), _x, {"shape": [(1, 2, 6, 12), (2, 1, 6, 6)], "factor": [1, 2, 3]}
        ),
        function(
            "ChannelShuffle", call("ChannelShuffle"), _x, {"shape": [(1, 12, 3, 4), (2, 6, 5, 1)], "factor": [1, 2, 3]}
        ),
    ]


def _grid_sample() -> Operator:
    def call(choice: Choice) -> Any:
        from torch.nn.functional import grid_sample

        return lambda x, grid: grid_sample(x, grid, **_given(choice, ("mode", "padding_mode", "align_corners")))

    def inputs(choice: Choice) -> list[Input]:
        rank = len(choice["shape"]) - 2
        return [*_x(choice), Input(shape=(choice["shape"][0], *(3, 5, 2)[:rank], rank), scale=0.7)]

    factors = {
        "shape": [(1, 2, 6, 8), (2, 3, 5, 5), (1, 2, 3, 4, 5)],
        "mode": [None, "bilinear", "nearest", "bicubic"],
        "padding_mode": [None, "zeros", "border", "reflection"],
        "align_corners": [None, True, False],
    }
    return function("grid_sample", call, inputs, factors, lambda c: c["mode"] != "bicubic" or len(c["shape"]) == 4)


OPERATORS = [
    *(_conv(rank) for rank in (1, 2, 3)),
    *(_conv_transpose(rank) for rank in (1, 2, 3)),
    *(_pool(kind, rank) for kind in ("Avg", "Max") for rank in (1, 2, 3)),
    *(_pool("LP", rank) for rank in (1, 2)),
    *(_adaptive(kind, rank) for kind in ("Avg", "Max") for rank in (1, 2, 3)),
    _interpolate(),
    _pad(),
    *_norms(),
    *_matrices(),
    _attention(),
    *(_recurrent(kind) for kind in ("RNN", "GRU", "LSTM")),
    _attention_module(),
    _embedding(),
    *_shuffles(),
    _grid_sample(),
]
