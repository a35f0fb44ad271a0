"""Networks of torchvision, timm, torchaudio and transformers with random weights, small enough for a microcontroller.

Each network is a module in `eval` mode and its inputs. The libraries are not dependencies of the project:

    pip install torchvision timm torchaudio transformers onnxscript

Variants are the libraries' smallest ones where these have at most six million parameters; others are made smaller by
the arguments of the library's own classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import nn

SEED = 0
_TOKENS = 100
"""Words of the vocabulary of each language model."""


@dataclass(frozen=True, kw_only=True)
class LibraryNetwork:
    """A network of a library.

    make: returns the module. inputs: float shapes, or the length of a row of tokens.
    """

    library: str
    family: str
    make: Callable[[], nn.Module]
    inputs: tuple[tuple[int, ...] | int, ...]

    def module(self) -> nn.Module:
        """Return the module with weights that a seed decides.

        Statistics of batches that are 0 and 1, and matrices that are 0, would hide errors. They are random too.
        """
        torch.manual_seed(SEED)
        module = self.make().eval()
        generator = torch.Generator().manual_seed(SEED)
        for name, buffer in module.named_buffers():
            if name.endswith("running_mean"):
                buffer.copy_(0.1 * torch.randn(buffer.shape, generator=generator))
            if name.endswith("running_var"):
                buffer.copy_(0.5 + torch.rand(buffer.shape, generator=generator))
        with torch.no_grad():
            for parameter in module.parameters():
                if parameter.dim() > 1 and not parameter.any():
                    parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
        return module

    def samples(self, seed: int) -> tuple[torch.Tensor, ...]:
        """Return random inputs."""
        generator = torch.Generator().manual_seed(seed)
        return tuple(
            torch.randint(1, _TOKENS, (1, shape), generator=generator)
            if isinstance(shape, int)
            else torch.randn(shape, generator=generator)
            for shape in self.inputs
        )


class Field(nn.Module):
    """A module of transformers that returns the tensors of some fields of its result, or of its only result."""

    def __init__(self, inner: nn.Module, fields: Sequence[str], **always: Any) -> None:
        super().__init__()
        self.inner, self.fields, self.always = inner, fields, always

    def forward(self, *inputs: torch.Tensor) -> Any:
        result = self.inner(*inputs, **self.always)
        found = tuple(getattr(result, field) for field in self.fields)
        return found[0] if len(found) == 1 else found


class First(nn.Module):
    """A module whose first result counts, run with the length of the whole input."""

    def __init__(self, inner: nn.Module, *, axis: int | None = None) -> None:
        super().__init__()
        self.inner, self.axis = inner, axis

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        lengths = () if self.axis is None else (torch.full((1,), x.shape[self.axis]),)
        result = self.inner(x, *lengths)
        return result[0] if isinstance(result, tuple) else result


def import_libraries() -> None:
    """Import all libraries, so that the processes of a fork server need not."""
    _declare_operators()
    for name in ("timm", "torchaudio.models", "torchvision.models", "transformers.models.bert.modeling_bert"):
        import_module(name)


def _torchvision(name: str, **options: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        _declare_operators()
        from torchvision import models

        return models.get_model(name, weights=None, num_classes=10, **options)

    return make


def _declare_operators() -> None:
    """Declare torchvision's operators, which none of the networks calls.

    Its wheels for CUDA do not load their library on a machine without CUDA, and its import then fails.
    """
    global _LIBRARY
    if _LIBRARY is None:
        _LIBRARY = torch.library.Library("torchvision", "FRAGMENT")
        for name in _OPERATORS.split():
            if not hasattr(torch.ops.torchvision, name):
                _LIBRARY.define(f"{name}(Tensor x) -> Tensor")


_LIBRARY: torch.library.Library | None = None
_OPERATORS = (
    "nms qnms roi_align _roi_align_backward ps_roi_align _ps_roi_align_backward roi_pool _roi_pool_backward "
    "ps_roi_pool _ps_roi_pool_backward qroi_align deform_conv2d _deform_conv2d_backward"
)


def _of_torchvision(make: Callable[[Any], nn.Module]) -> Callable[[], nn.Module]:
    def made() -> nn.Module:
        _declare_operators()
        from torchvision import models

        return make(models)

    return made


def _segmentation() -> nn.Module:
    _declare_operators()
    from torchvision.models import segmentation

    class Scores(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)["out"]

    return Scores(segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=8))


def _convnext(models: Any) -> nn.Module:
    block = models.convnext.CNBlockConfig
    return models.ConvNeXt([block(24, 48, 1), block(48, 96, 1), block(96, None, 2)], num_classes=10)


def _maxvit(models: Any) -> nn.Module:
    return models.MaxVit(
        input_size=(64, 64), stem_channels=16, partition_size=4, block_channels=[16, 32], block_layers=[1, 1],
        head_dim=8, stochastic_depth_prob=0.0, num_classes=10,
    )  # fmt: skip


def _timm(name: str, **options: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        _declare_operators()
        import timm

        return timm.create_model(name, pretrained=False, num_classes=10, **options)

    return make


def _of_timm(make: Callable[[Any], nn.Module]) -> Callable[[], nn.Module]:
    def made() -> nn.Module:
        _declare_operators()
        import timm

        return make(timm)

    return made


def _torchaudio(make: Callable[[Any], nn.Module]) -> Callable[[], nn.Module]:
    def made() -> nn.Module:
        from torchaudio import models

        return make(models)

    return made


def _wav2vec2(models: Any) -> nn.Module:
    return First(
        models.wav2vec2_model(
            extractor_mode="group_norm", extractor_conv_layer_config=[(32, 10, 5), (32, 3, 2), (32, 2, 2)],
            extractor_conv_bias=False, encoder_embed_dim=64, encoder_projection_dropout=0.0,
            encoder_pos_conv_kernel=16, encoder_pos_conv_groups=4, encoder_num_layers=2, encoder_num_heads=4,
            encoder_attention_dropout=0.0, encoder_ff_interm_features=128, encoder_ff_interm_dropout=0.0,
            encoder_dropout=0.0, encoder_layer_norm_first=False, encoder_layer_drop=0.0, aux_num_out=29,
        )
    )  # fmt: skip


_SMALL = {
    "vocab_size": _TOKENS, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 128, "max_position_embeddings": 64,
}  # fmt: skip
_GROUPED = {"num_key_value_heads": 2, "use_cache": False, "pad_token_id": 0}
"""Two heads share their keys and values."""
_STATES, _LOGITS, _POOLED = ("last_hidden_state",), ("logits",), ("last_hidden_state", "pooler_output")


def _transformer(name: str, fields: Sequence[str], config: Mapping[str, Any], **always: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        _declare_operators()
        import transformers

        kind = getattr(transformers, name)
        return Field(kind(kind.config_class(**config)), fields, **always)

    return make


def _all() -> dict[str, LibraryNetwork]:
    image, small_image, wave = ((1, 3, 64, 64),), ((1, 3, 32, 32),), ((1, 1, 2000),)
    entries: list[tuple[str, str, str, Callable[[], nn.Module], tuple[Any, ...]]] = [
        ("torchvision", "mobilenet_v2", "inverted residuals", _torchvision("mobilenet_v2", width_mult=0.35), image),
        ("torchvision", "mobilenet_v3_small", "inverted residuals", _torchvision("mobilenet_v3_small"), image),
        ("torchvision", "shufflenet_v2_x0_5", "channel shuffles", _torchvision("shufflenet_v2_x0_5"), image),
        ("torchvision", "squeezenet1_1", "fire modules", _torchvision("squeezenet1_1"), image),
        ("torchvision", "mnasnet0_5", "searched", _torchvision("mnasnet0_5"), image),
        ("torchvision", "efficientnet_b0", "squeeze and excitation", _torchvision("efficientnet_b0"), image),
        ("torchvision", "regnet_y_400mf", "grouped convolutions", _torchvision("regnet_y_400mf"), image),
        ("torchvision", "densenet", "dense blocks", _of_torchvision(
            lambda models: models.DenseNet(growth_rate=8, block_config=(3, 3, 3), num_init_features=16, num_classes=10)
        ), image),
        ("torchvision", "resnet", "residual", _of_torchvision(
            lambda models: models.ResNet(models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=10)
        ), small_image),
        ("torchvision", "convnext", "modern convolutions", _of_torchvision(_convnext), image),
        ("torchvision", "swin", "shifted windows", _of_torchvision(lambda models: models.SwinTransformer(
            patch_size=[4, 4], embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=[4, 4], num_classes=10,
        )), image),
        ("torchvision", "swin_v2", "shifted windows", _of_torchvision(lambda models: models.SwinTransformer(
            patch_size=[4, 4], embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=[4, 4], num_classes=10,
            block=models.swin_transformer.SwinTransformerBlockV2,
            downsample_layer=models.swin_transformer.PatchMergingV2,
        )), image),
        ("torchvision", "vit", "vision transformer", _of_torchvision(lambda models: models.VisionTransformer(
            image_size=32, patch_size=8, num_layers=2, num_heads=4, hidden_dim=64, mlp_dim=128, num_classes=10,
        )), small_image),
        ("torchvision", "maxvit", "grid attention", _of_torchvision(_maxvit), image),
        ("torchvision", "lraspp_mobilenet_v3", "segmentation", _segmentation, image),
        ("timm", "mobilenetv4_conv_small_050", "inverted residuals", _timm("mobilenetv4_conv_small_050"), image),
        ("timm", "mobilevit_xxs", "convolutions and attention", _timm("mobilevit_xxs"), image),
        ("timm", "edgenext_xx_small", "cross-covariance", _timm("edgenext_xx_small"), image),
        ("timm", "tinynet_e", "squeeze and excitation", _timm("tinynet_e"), image),
        ("timm", "lcnet_050", "depthwise", _timm("lcnet_050"), image),
        ("timm", "ghostnet_050", "ghost modules", _timm("ghostnet_050"), image),
        ("timm", "mixnet_s", "mixed kernels", _timm("mixnet_s"), image),
        ("timm", "mobileone_s0", "parallel branches", _timm("mobileone_s0"), image),
        ("timm", "starnet_s050", "element products", _timm("starnet_s050"), image),
        ("timm", "efficientvit_m0", "cascaded attention", _timm("efficientvit_m0", img_size=64), image),
        ("timm", "efficientvit_b0", "linear attention", _timm("efficientvit_b0"), image),
        ("timm", "fastvit_t8", "convolutions and attention", _timm("fastvit_t8"), image),
        ("timm", "poolformer", "pooling as a mixer", _of_timm(
            lambda timm: timm.models.MetaFormer(depths=(1, 1, 1, 1), dims=(16, 32, 48, 64), num_classes=10)
        ), image),
        ("timm", "mixer", "dense mixer", _of_timm(lambda timm: timm.models.MlpMixer(
            img_size=64, patch_size=16, embed_dim=64, num_blocks=2, num_classes=10,
        )), image),
        ("timm", "xcit", "cross-covariance", _timm("xcit_nano_12_p16_224", img_size=64, depth=2, embed_dim=48), image),
        ("timm", "test_vit", "vision transformer", _timm("test_vit", img_size=64), image),
        ("torchaudio", "deepspeech", "recurrent", _torchaudio(
            lambda models: models.DeepSpeech(n_feature=40, n_hidden=64, n_class=29)
        ), ((1, 1, 20, 40),)),
        ("torchaudio", "conv_tasnet", "separation", _torchaudio(lambda models: models.ConvTasNet(
            enc_num_feats=32, msk_num_feats=16, msk_num_hidden_feats=32, msk_num_layers=3, msk_num_stacks=1
        )), wave),
        ("torchaudio", "conformer", "convolutions and attention", _torchaudio(lambda models: First(models.Conformer(
            input_dim=40, num_heads=4, ffn_dim=64, num_layers=2, depthwise_conv_kernel_size=15
        ), axis=1)), ((1, 32, 40),)),
        ("torchaudio", "emformer", "streaming attention", _torchaudio(lambda models: First(models.Emformer(
            input_dim=40, num_heads=4, ffn_dim=64, num_layers=2, segment_length=4, right_context_length=1
        ), axis=1)), ((1, 17, 40),)),
        ("torchaudio", "wav2vec2", "waves", _torchaudio(_wav2vec2), ((1, 2000),)),
        ("transformers", "bert", "encoder", _transformer("BertModel", _POOLED, _SMALL), (16,)),
        ("transformers", "distilbert", "encoder", _transformer("DistilBertModel", _STATES, {
            "vocab_size": _TOKENS, "dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128,
            "max_position_embeddings": 64,
        }), (16,)),
        ("transformers", "albert", "encoder, shared layers", _transformer("AlbertModel", _POOLED, {
            **_SMALL, "embedding_size": 32,
        }), (16,)),
        ("transformers", "mobilebert", "encoder", _transformer("MobileBertModel", _STATES, {
            **_SMALL, "embedding_size": 32, "intra_bottleneck_size": 32, "true_hidden_size": 32,
        }), (16,)),
        ("transformers", "gpt2", "decoder", _transformer("GPT2LMHeadModel", _LOGITS, {
            "vocab_size": _TOKENS, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64,
        }, use_cache=False), (16,)),
        ("transformers", "llama", "decoder", _transformer("LlamaForCausalLM", _LOGITS, {**_SMALL, **_GROUPED}), (16,)),
        ("transformers", "qwen2", "decoder", _transformer("Qwen2ForCausalLM", _LOGITS, {**_SMALL, **_GROUPED}), (16,)),
        ("transformers", "gemma", "decoder", _transformer("GemmaForCausalLM", _LOGITS, {
            **_SMALL, **_GROUPED, "head_dim": 16,
        }), (16,)),
        ("transformers", "mamba", "state space", _transformer("MambaForCausalLM", _LOGITS, {
            "vocab_size": _TOKENS, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "use_cache": False,
        }), (16,)),
        ("transformers", "t5", "encoder and decoder", _transformer("T5Model", _STATES, {
            "vocab_size": _TOKENS, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4,
        }, use_cache=False, decoder_input_ids=torch.tensor([[0, 5, 7, 9]])), (16,)),
        ("transformers", "whisper", "waves", _transformer("WhisperModel", _STATES, {
            "vocab_size": _TOKENS, "d_model": 64, "encoder_layers": 2, "decoder_layers": 2,
            "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 128,
            "decoder_ffn_dim": 128, "num_mel_bins": 20, "max_source_positions": 32, "max_target_positions": 32,
            "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
        }, use_cache=False, decoder_input_ids=torch.tensor([[1, 5, 7, 9]])), ((1, 20, 64),)),
        ("transformers", "segformer", "segmentation", _transformer("SegformerForSemanticSegmentation", _LOGITS, {
            "depths": [1, 1, 1, 1], "hidden_sizes": [16, 32, 48, 64], "num_attention_heads": [1, 2, 3, 4],
            "decoder_hidden_size": 32,
        }), image),
        ("transformers", "patchtst", "time series", _transformer("PatchTSTForPrediction", ("prediction_outputs",), {
            "num_input_channels": 3, "context_length": 64, "patch_length": 8, "patch_stride": 8, "d_model": 32,
            "num_attention_heads": 4, "num_hidden_layers": 2, "ffn_dim": 64, "prediction_length": 8,
        }), ((1, 64, 3),)),
    ]  # fmt: skip
    return {
        f"{library}/{name}": LibraryNetwork(library=library, family=family, make=make, inputs=inputs)
        for library, name, family, make, inputs in entries
    }


NETWORKS: dict[str, LibraryNetwork] = _all()
"""Networks by library and name."""
