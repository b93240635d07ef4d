"""The models that are compared, each in several configurations."""

# ruff: noqa: C408 - settings are named as the reference names them

from __future__ import annotations

import timm.models.convnext
import timm.models.resnet
import timm.models.vision_transformer
import torchvision
from case_kinds import Case, ClipCase, ImageCase, ModuleCase, TextCase
from cases_decoders import DECODERS
from cases_texts import TEXTS
from usual import ENCODER, HEADS, LLAMA, having

__all__ = ["CASES"]

TEXT = dict(ENCODER, max_position_embeddings=11, hidden_size=18, num_attention_heads=3, eos_token_id=2)
VISION = dict(
    hidden_size=16,
    intermediate_size=23,
    num_hidden_layers=2,
    num_attention_heads=4,
    image_size=12,
    patch_size=4,
)


CASES = [
    Case(
        "llama",
        "Llama 2",
        "llama",
        "LlamaConfig",
        "LlamaForCausalLM",
        [
            *HEADS,
            dict(HEADS[0], head_dim=8, attention_bias=True, mlp_bias=True, rope_theta=500000.0),
        ],
        LLAMA,
    ),
    Case(
        "llama3",
        "Llama 3: scalings llama3, linear, dynamic, yarn",
        "llama",
        "LlamaConfig",
        "LlamaForCausalLM",
        [
            dict(
                HEADS[0],
                rope_theta=500.0,
                rope_scaling=dict(
                    rope_type="llama3",
                    factor=8.0,
                    low_freq_factor=1.0,
                    high_freq_factor=4.0,
                    original_max_position_embeddings=32,
                ),
            ),
            dict(HEADS[1], rope_scaling=dict(rope_type="linear", factor=3.0)),
            dict(
                HEADS[0],
                rope_scaling=dict(rope_type="dynamic", factor=4.0),
                max_position_embeddings=16,
                steps=21,
                decodes=False,
            ),
            dict(
                HEADS[0],
                rope_theta=300.0,
                rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16),
            ),
            dict(
                HEADS[2],
                rope_scaling=dict(
                    rope_type="yarn",
                    factor=4.0,
                    original_max_position_embeddings=16,
                    mscale=0.7,
                    mscale_all_dim=1.1,
                ),
            ),
        ],
        LLAMA,
    ),
    Case(
        "mistral",
        "Mistral",
        "mistral",
        "MistralConfig",
        "MistralForCausalLM",
        [*having(sliding_window=4), dict(HEADS[0], sliding_window=None, head_dim=10)],
        LLAMA,
    ),
    Case(
        "qwen2",
        "Qwen 2, Qwen 2.5",
        "qwen2",
        "Qwen2Config",
        "Qwen2ForCausalLM",
        [*HEADS, dict(HEADS[0], use_sliding_window=True, sliding_window=3, max_window_layers=1)],
        LLAMA,
    ),
    Case(
        "qwen3",
        "Qwen 3",
        "qwen3",
        "Qwen3Config",
        "Qwen3ForCausalLM",
        [*having(head_dim=10), dict(HEADS[0], head_dim=6, attention_bias=True)],
        LLAMA,
    ),
    Case(
        "smollm3",
        "SmolLM 3 (SmolLM and SmolLM 2 are Llamas)",
        "smollm3",
        "SmolLM3Config",
        "SmolLM3ForCausalLM",
        [
            *having(no_rope_layer_interval=2, pad_token_id=None),
            dict(
                HEADS[0], no_rope_layers=[0, 1], pad_token_id=None, use_sliding_window=True, sliding_window=4
            ),
        ],
        LLAMA,
    ),
    Case(
        "phi3",
        "Phi-3, Phi-4",
        "phi3",
        "Phi3Config",
        "Phi3ForCausalLM",
        [
            *having(pad_token_id=None),
            dict(HEADS[0], sliding_window=4, pad_token_id=None),
            dict(HEADS[0], hidden_size=32, partial_rotary_factor=0.5, pad_token_id=None),
            dict(
                HEADS[0],
                hidden_size=32,
                pad_token_id=None,
                original_max_position_embeddings=32,
                rope_scaling=dict(
                    type="longrope", short_factor=[1.0, 1.1, 1.2, 1.5], long_factor=[2.0, 3.0, 4.0, 5.0]
                ),
            ),
            dict(
                HEADS[0],
                hidden_size=32,
                pad_token_id=None,
                original_max_position_embeddings=16,
                rope_scaling=dict(
                    type="longrope", short_factor=[1.0, 1.1, 1.2, 1.5], long_factor=[2.0, 3.0, 4.0, 5.0]
                ),
                steps=20,
            ),
        ],
        LLAMA,
    ),
    Case(
        "gpt2",
        "GPT-2",
        "gpt2",
        "GPT2Config",
        "GPT2LMHeadModel",
        [
            dict(n_embd=16, n_head=4, n_inner=24),
            dict(n_embd=18, n_head=3, n_inner=31, tie_word_embeddings=False),
            dict(n_embd=20, n_head=2, activation_function="gelu"),
        ],
        dict(vocab_size=31, n_positions=32, n_layer=2, bos_token_id=0, eos_token_id=0),
    ),
    Case(
        "gpt_neox",
        "GPT-NeoX, Pythia",
        "gpt_neox",
        "GPTNeoXConfig",
        "GPTNeoXForCausalLM",
        [
            dict(num_attention_heads=2, rotary_pct=0.5),
            dict(num_attention_heads=3, hidden_size=18, use_parallel_residual=False, rotary_pct=1.0),
            dict(num_attention_heads=2, attention_bias=False, rotary_pct=0.34, tie_word_embeddings=True),
        ],
        LLAMA,
    ),
    TextCase(
        "bert",
        "BERT",
        "bert",
        "BertConfig",
        "BertModel",
        [
            dict(model="BertForMaskedLM"),
            dict(hidden_size=18, num_attention_heads=3),
            dict(model="BertForTokenClassification", num_labels=5, hidden_act="gelu_new"),
            dict(model="BertForQuestionAnswering"),
            dict(model="BertForSequenceClassification", num_labels=3),
            dict(model="BertForMaskedLM", tie_word_embeddings=False),
        ],
        dict(ENCODER, pad_token_id=0),
        decodes=False,
    ),
    TextCase(
        "roberta",
        "RoBERTa, CamemBERT",
        "roberta",
        "RobertaConfig",
        "RobertaModel",
        [
            dict(model="RobertaForMaskedLM"),
            dict(hidden_size=18, num_attention_heads=3),
            dict(model="RobertaForSequenceClassification", num_labels=3),
        ],
        dict(ENCODER, pad_token_id=1, type_vocab_size=1),
        decodes=False,
    ),
    TextCase(
        "distilbert",
        "DistilBERT",
        "distilbert",
        "DistilBertConfig",
        "DistilBertModel",
        [
            dict(model="DistilBertForMaskedLM"),
            dict(dim=18, n_heads=3),
            dict(model="DistilBertForSequenceClassification", num_labels=3),
        ],
        dict(
            vocab_size=31,
            dim=16,
            n_heads=4,
            hidden_dim=23,
            n_layers=2,
            max_position_embeddings=32,
            pad_token_id=0,
        ),
        decodes=False,
    ),
    ImageCase(
        "vit",
        "ViT",
        "vit",
        "ViTConfig",
        "ViTModel",
        [
            dict(model="ViTForImageClassification", num_labels=3),
            dict(hidden_size=18, num_attention_heads=3, qkv_bias=False),
            dict(patch_size=3, num_channels=1, hidden_act="gelu_new"),
        ],
        dict(ENCODER, image_size=12, patch_size=4),
        decodes=False,
    ),
    ModuleCase(
        "vit_timm",
        "ViT, by timm's names",
        "vit_base_patch16_224 ...",
        "",
        "",
        [
            dict(
                make=lambda: timm.models.vision_transformer.VisionTransformer(
                    img_size=12,
                    patch_size=4,
                    embed_dim=16,
                    depth=2,
                    num_heads=2,
                    num_classes=3,
                    mlp_ratio=1.0,
                ),
                told={"architecture": "vit_tiny_patch4_12", "num_heads": 2},
            )
        ],
        decodes=False,
    ),
    ClipCase(
        "clip",
        "CLIP: both towers",
        "clip",
        "CLIPConfig",
        "CLIPModel",
        [
            dict(text_config=TEXT, vision_config=VISION, projection_dim=10),
            dict(
                text_config=dict(TEXT, hidden_act="gelu", num_attention_heads=2),
                vision_config=dict(VISION, hidden_act="gelu", hidden_size=18, num_attention_heads=3),
                projection_dim=7,
            ),
        ],
        decodes=False,
        parts=("vision", "text"),
    ),
    ImageCase(
        "resnet",
        "ResNet",
        "resnet",
        "ResNetConfig",
        "ResNetModel",
        [
            dict(model="ResNetForImageClassification", num_labels=3, layer_type="basic"),
            dict(depths=[2, 1], hidden_sizes=[12, 20]),
            dict(downsample_in_first_stage=True, downsample_in_bottleneck=True),
        ],
        dict(embedding_size=6, hidden_sizes=[8, 12], depths=[1, 2], loom_image_size=32),
        decodes=False,
    ),
    ModuleCase(
        "resnet_timm",
        "ResNet, ResNeXt, by torchvision's and timm's names",
        "resnet50, resnext50_32x4d ..., or no config.json",
        "",
        "",
        [
            dict(
                make=lambda: timm.models.resnet.ResNet(
                    timm.models.resnet.BasicBlock,
                    [1, 2, 1, 1],
                    channels=(4, 6, 8, 10),
                    stem_width=4,
                    num_classes=3,
                ),
                told={"architecture": "resnet18", "pretrained_cfg": {"input_size": [3, 32, 32]}},
            ),
            dict(make=lambda: torchvision.models.resnet18(num_classes=4)),
            dict(make=lambda: torchvision.models.resnet50(num_classes=4)),
            dict(make=lambda: torchvision.models.resnext50_32x4d(num_classes=4)),
        ],
        dict(loom_image_size=32),
        decodes=False,
    ),
    ImageCase(
        "convnext",
        "ConvNeXt",
        "convnext",
        "ConvNextConfig",
        "ConvNextModel",
        [
            dict(model="ConvNextForImageClassification", num_labels=3),
            dict(hidden_sizes=[6, 8, 10, 12], depths=[2, 1, 1, 1]),
        ],
        dict(hidden_sizes=[4, 6, 8, 10], depths=[1, 1, 2, 1], image_size=32),
        decodes=False,
    ),
    ModuleCase(
        "convnext_timm",
        "ConvNeXt, by torchvision's and timm's names",
        "convnext_tiny ..., or no config.json",
        "",
        "",
        [
            dict(
                make=lambda: timm.models.convnext.ConvNeXt(
                    depths=(1, 1, 2, 1), dims=(4, 6, 8, 10), num_classes=3, conv_mlp=True
                ),
                told={"architecture": "convnext_tiny", "pretrained_cfg": {"input_size": [3, 32, 32]}},
            ),
            dict(
                make=lambda: torchvision.models.convnext.ConvNeXt(
                    [
                        torchvision.models.convnext.CNBlockConfig(8, 12, 1),
                        torchvision.models.convnext.CNBlockConfig(12, 16, 2),
                        torchvision.models.convnext.CNBlockConfig(16, None, 1),
                    ],
                    num_classes=4,
                ),
                loom_image_size=32,
            ),
        ],
        decodes=False,
    ),
    Case(
        "olmo2",
        "OLMo 2",
        "olmo2",
        "Olmo2Config",
        "Olmo2ForCausalLM",
        [*HEADS, dict(HEADS[0], attention_bias=True)],
        dict(LLAMA, eos_token_id=2, pad_token_id=1),
    ),
    Case(
        "gemma",
        "Gemma",
        "gemma",
        "GemmaConfig",
        "GemmaForCausalLM",
        [*having(head_dim=6)],
        LLAMA,
    ),
    Case(
        "gemma2",
        "Gemma 2",
        "gemma2",
        "Gemma2Config",
        "Gemma2ForCausalLM",
        [
            *having(head_dim=6, sliding_window=4, query_pre_attn_scalar=9),
            dict(
                HEADS[0],
                head_dim=6,
                attn_logit_softcapping=0.7,
                final_logit_softcapping=1.3,
                sliding_window=3,
            ),
        ],
        LLAMA,
    ),
    Case(
        "gemma3",
        "Gemma 3 (text)",
        "gemma3_text",
        "Gemma3TextConfig",
        "Gemma3ForCausalLM",
        [
            *having(
                head_dim=6,
                sliding_window=4,
                query_pre_attn_scalar=9,
                layer_types=["sliding_attention", "full_attention"],
            ),
            dict(
                HEADS[0],
                head_dim=6,
                sliding_window=4,
                num_hidden_layers=3,
                sliding_window_pattern=3,
                rope_scaling=dict(rope_type="linear", factor=8.0),
            ),
        ],
        LLAMA,
    ),
    Case(
        "mixtral",
        "Mixtral",
        "mixtral",
        "MixtralConfig",
        "MixtralForCausalLM",
        [
            *having(num_local_experts=4, num_hidden_layers=1),
            dict(HEADS[0], num_local_experts=5, num_experts_per_tok=3, sliding_window=4),
        ],
        dict(LLAMA, intermediate_size=20),
    ),
    Case(
        "qwen2_moe",
        "Qwen 2 MoE",
        "qwen2_moe",
        "Qwen2MoeConfig",
        "Qwen2MoeForCausalLM",
        [
            *having(num_experts=4, num_experts_per_tok=2, num_hidden_layers=1),
            dict(HEADS[0], num_experts=3, num_experts_per_tok=2, norm_topk_prob=True, mlp_only_layers=[0]),
        ],
        dict(LLAMA, moe_intermediate_size=14, shared_expert_intermediate_size=18),
    ),
    Case(
        "qwen3_moe",
        "Qwen 3 MoE",
        "qwen3_moe",
        "Qwen3MoeConfig",
        "Qwen3MoeForCausalLM",
        [
            *having(num_experts=4, num_experts_per_tok=2, norm_topk_prob=True, num_hidden_layers=1),
            dict(HEADS[0], num_experts=5, num_experts_per_tok=2, decoder_sparse_step=2),
        ],
        dict(LLAMA, moe_intermediate_size=14, head_dim=8),
    ),
    *DECODERS,
    *TEXTS,
]
