"""Encoders of text, and decoders that classify texts or make vectors of them."""

# ruff: noqa: C408 - settings are named as the reference names them

from __future__ import annotations

from case_kinds import SentenceCase, TextCase
from usual import ENCODER, HEADS, LLAMA

__all__ = ["TEXTS"]

FILES = ("config.json", "modules.json", "sentence_bert_config.json")

TEXTS = [
    SentenceCase(
        "sentences",
        "Sentence encoders (modules.json: pooling, normalise)",
        "bert, roberta, distilbert",
        "BertConfig",
        "BertModel",
        [dict(pooling="mean_tokens"), dict(pooling="cls_token", hidden_size=18, num_attention_heads=3)],
        dict(ENCODER, pad_token_id=0),
        decodes=False,
        files=("config.json", "modules.json", "sentence_bert_config.json"),
    ),
    SentenceCase(
        "sentences_decoder",
        "Sentence encoders made of decoders (Qwen3-Embedding): the last token",
        "qwen3, llama, mistral ...",
        "Qwen3Config",
        "Qwen3Model",
        [
            dict(HEADS[0], pooling="lasttoken"),
            dict(HEADS[1], pooling="lasttoken", pad_token_id=1),
            dict(HEADS[2], pooling="mean_tokens", pad_token_id=1, dense=[(9, "Tanh")]),
        ],
        dict(LLAMA, head_dim=6, eos_token_id=2),
        decodes=False,
        files=FILES,
    ),
    SentenceCase(
        "sentences_gemma",
        "EmbeddingGemma: attention both ways, Dense modules",
        "gemma3_text",
        "Gemma3TextConfig",
        "Gemma3TextModel",
        [
            dict(HEADS[0], dense=[(20, "Identity"), (10, "Identity")]),
            dict(HEADS[2], dense=[(7, "GELU")], sliding_window=5, attention_bias=True),
        ],
        dict(
            LLAMA,
            head_dim=6,
            pooling="mean_tokens",
            use_bidirectional_attention=True,
            sliding_window=4,
            query_pre_attn_scalar=9,
            layer_types=["sliding_attention", "full_attention"],
            pad_token_id=0,
        ),
        decodes=False,
        files=FILES,
    ),
    TextCase(
        "classifiers",
        "Decoders that classify texts or tokens",
        "llama, qwen2, qwen3, mistral, gpt2 ...",
        "Qwen3Config",
        "Qwen3ForSequenceClassification",
        [
            dict(HEADS[0], num_labels=3, head_dim=6),
            dict(HEADS[1], config="LlamaConfig", model="LlamaForSequenceClassification", num_labels=1),
            dict(HEADS[2], config="Qwen2Config", model="Qwen2ForTokenClassification", num_labels=4),
            dict(HEADS[0], config="Gemma2Config", model="Gemma2ForSequenceClassification", head_dim=6),
            dict(config="GPT2Config", model="GPT2ForSequenceClassification", n_embd=16, n_head=4, n_layer=2),
            dict(config="GPT2Config", model="GPT2ForTokenClassification", n_embd=16, n_head=4, n_layer=2),
        ],
        dict(LLAMA, pad_token_id=0, eos_token_id=2),
        decodes=False,
    ),
    TextCase(
        "electra",
        "ELECTRA",
        "electra",
        "ElectraConfig",
        "ElectraModel",
        [
            dict(model="ElectraForPreTraining", embedding_size=10),
            dict(model="ElectraForMaskedLM", embedding_size=10),
            dict(model="ElectraForMaskedLM", tie_word_embeddings=False),
            dict(model="ElectraForSequenceClassification", num_labels=3, hidden_act="relu"),
            dict(model="ElectraForTokenClassification", num_labels=5),
            dict(hidden_size=18, num_attention_heads=3, embedding_size=18),
        ],
        dict(ENCODER, embedding_size=16, pad_token_id=0),
        decodes=False,
    ),
    TextCase(
        "mpnet",
        "MPNet",
        "mpnet",
        "MPNetConfig",
        "MPNetModel",
        [
            dict(steps=41),
            dict(model="MPNetForMaskedLM"),
            dict(hidden_size=18, num_attention_heads=3, hidden_act="gelu_new", steps=150),
            dict(model="MPNetForSequenceClassification", num_labels=3),
            dict(model="MPNetForTokenClassification"),
            dict(model="MPNetForQuestionAnswering"),
        ],
        dict(ENCODER, pad_token_id=1, max_position_embeddings=162),
        decodes=False,
    ),
    TextCase(
        "modernbert",
        "ModernBERT",
        "modernbert",
        "ModernBertConfig",
        "ModernBertModel",
        [
            dict(model="ModernBertForMaskedLM"),
            dict(
                model="ModernBertForMaskedLM", tie_word_embeddings=False, decoder_bias=False, norm_bias=True
            ),
            dict(hidden_size=24, num_attention_heads=3, attention_bias=True, mlp_bias=True),
            dict(model="ModernBertForSequenceClassification", num_labels=3, classifier_bias=True),
            dict(model="ModernBertForSequenceClassification", classifier_pooling="mean"),
            dict(model="ModernBertForTokenClassification", num_labels=5, local_rope_theta=None),
            dict(model="ModernBertForQuestionAnswering", global_attn_every_n_layers=2),
        ],
        dict(
            ENCODER,
            pad_token_id=0,
            num_hidden_layers=3,
            local_attention=6,
            local_rope_theta=100.0,
            bos_token_id=1,
            eos_token_id=2,
            cls_token_id=1,
            sep_token_id=2,
        ),
        decodes=False,
    ),
    TextCase(
        "xlm_roberta",
        "XLM-RoBERTa",
        "xlm-roberta",
        "XLMRobertaConfig",
        "XLMRobertaModel",
        [
            dict(model="XLMRobertaForSequenceClassification", num_labels=1),
            dict(model="XLMRobertaForMaskedLM"),
            dict(hidden_size=18, num_attention_heads=3),
        ],
        dict(ENCODER, pad_token_id=1, type_vocab_size=1),
        decodes=False,
    ),
]
