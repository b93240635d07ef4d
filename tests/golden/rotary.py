"""Writes rotary.json: the rates of rotary embeddings as transformers 4.57.1 computes them, in float32.

    python tests/golden/rotary.py

needs PyTorch and transformers. Each case holds loom's settings, how many elements turn, the rate of each pair,
and what is multiplied with.
"""

import json
from pathlib import Path

from transformers import PretrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS


def case(rotary, kind, dim, scaling, length=None, **config):
    """A case: `rotary` is loom's, the rest what transformers is told of the same."""
    config = PretrainedConfig(
        rope_theta=rotary["base"],
        hidden_size=4 * 2 * dim,
        num_attention_heads=4,
        head_dim=2 * dim,
        partial_rotary_factor=0.5,
        rope_scaling={"rope_type": kind, **scaling},
        **config,
    )
    rates, factor = ROPE_INIT_FUNCTIONS[kind](config, "cpu", seq_len=length)
    return {"rotary": rotary, "dim": dim, "rates": [float(rate) for rate in rates], "factor": factor}


def main():
    longer = [1.0 + i * i / 7 for i in range(8)]
    cases = [
        case({"base": 10_000.0, "scaling": 4.0}, "linear", 16, {"factor": 4.0}),
        *(
            case(
                {
                    "base": base,
                    "scaling": factor,
                    "rule": {"llama3": {"original_length": 8192.0, "low_factor": low, "high_factor": high}},
                },
                "llama3",
                32,
                {
                    "factor": factor,
                    "low_freq_factor": low,
                    "high_freq_factor": high,
                    "original_max_position_embeddings": 8192,
                },
            )
            for base, factor, low, high in [(500_000.0, 8.0, 1.0, 4.0), (10_000.0, 32.0, 2.0, 9.0)]
        ),
        case(
            {"base": 10_000.0, "scaling": 4.0, "rule": {"yarn": {"original_length": 4096.0}}},
            "yarn",
            32,
            {"factor": 4.0, "original_max_position_embeddings": 4096},
        ),
        case(
            {
                "base": 150_000.0,
                "scaling": 32.0,
                "rule": {
                    "yarn": {
                        "original_length": 4096.0,
                        "beta_fast": 16.0,
                        "beta_slow": 2.0,
                        "attention_factor": 1.25,
                        "whole_pairs": False,
                    }
                },
            },
            "yarn",
            32,
            {
                "factor": 32.0,
                "original_max_position_embeddings": 4096,
                "beta_fast": 16.0,
                "beta_slow": 2.0,
                "attention_factor": 1.25,
                "truncate": False,
            },
        ),
        *(
            case(
                {
                    "base": 10_000.0,
                    "scaling": 2.0,
                    "rule": {"dynamic": {"original_length": 128.0, "length": float(length)}},
                },
                "dynamic",
                16,
                {"factor": 2.0},
                length=length,
                max_position_embeddings=128,
            )
            for length in (100, 300)
        ),
        *(
            case(
                {
                    "base": 10_000.0,
                    "scaling": 32.0,
                    "rule": {"long_rope": {"original_length": 4096.0, "factors": factors}},
                },
                "longrope",
                16,
                {"short_factor": [1.0] * 8, "long_factor": longer},
                length=length,
                max_position_embeddings=131_072,
                original_max_position_embeddings=4096,
            )
            for factors, length in (([1.0] * 8, 100), (longer, 5000))
        ),
    ]
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    Path(__file__).with_suffix(".json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
