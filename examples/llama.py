"""Generates text with a small Llama: reads its weights from a file, then continues a prompt greedily.

    python examples/llama.py MODEL TOKENIZER [--prompt TEXT] [--steps N]

MODEL is in the format of llama2.c (its first version), such as stories260K.bin;
TOKENIZER is the file that goes with it, such as tok512.bin. Prints the text, and
how many tokens a second it took: set LOOM_NUM_THREADS=1 to measure one thread.
"""

from __future__ import annotations

import argparse
import struct
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import loom
from loom import nn

START = 1  # the token that stands before every text


@dataclass(frozen=True)
class Header:
    """What a model file says of its model, in the order of the file."""

    width: int
    hidden: int
    blocks: int
    heads: int
    key_value_heads: int
    vocabulary: int
    time: int


def read_model(path: Path) -> loom.Network:
    """Builds the network that a file describes, with the file's weights."""
    data = path.read_bytes()
    model = Header(*struct.unpack_from("7i", data))
    shares_table = model.vocabulary > 0
    model = Header(*{**vars(model), "vocabulary": abs(model.vocabulary)}.values())
    numbers = np.frombuffer(data, np.float32, offset=28)

    def take(*shape: int) -> NDArray[np.float32]:
        nonlocal numbers
        taken, numbers = np.split(numbers, [int(np.prod(shape))])
        return taken.reshape(shape)

    blocks, width, hidden = model.blocks, model.width, model.hidden
    shared = width // model.heads * model.key_value_heads
    table = take(model.vocabulary, width)
    attention_norm = take(blocks, width)
    query, key, value = (take(blocks, extent, width) for extent in (width, shared, shared))
    output = take(blocks, width, width)
    gated_norm = take(blocks, width)
    gate, down, up = (take(blocks, *shape) for shape in ((hidden, width), (width, hidden), (hidden, width)))
    last_norm = take(width)
    take(2, model.time, width // model.heads // 2)  # the angles of the rotary embedding
    head = table if shares_table else take(model.vocabulary, width)

    net = network(model, tied=shares_table)
    state = {"0.0.0.0.weight": table, f"0.0.0.{2 * blocks + 1}.weight": last_norm}
    if not shares_table:
        state[f"0.0.0.{2 * blocks + 2}.weight"] = head
    for block in range(blocks):
        attention, gated = (f"0.0.0.{2 * block + place}.layers" for place in (1, 2))
        state |= {
            f"{attention}.0.weight": attention_norm[block],
            f"{attention}.1.query_weight": query[block],
            f"{attention}.1.key_weight": key[block],
            f"{attention}.1.value_weight": value[block],
            f"{attention}.1.output_weight": output[block],
            f"{gated}.0.weight": gated_norm[block],
            f"{gated}.1.gate_weight": gate[block],
            f"{gated}.1.up_weight": up[block],
            f"{gated}.1.down_weight": down[block],
        }
    return net.load_state_dict(state)


def network(model: Header, tied: bool) -> loom.Network:
    """Builds a Llama of loom's layers."""
    attention = nn.MultiHeadAttention(
        model.heads, key_value_heads=model.key_value_heads, causal=True, rotary=nn.Rotary(), bias=False
    )
    block = [
        nn.Residual([nn.RMSNorm(epsilon=1e-5), attention]),
        nn.Residual([nn.RMSNorm(epsilon=1e-5), nn.SwiGLU(model.hidden)]),
    ]
    return loom.Sequential(
        [
            nn.Embedding(model.vocabulary, model.width),
            *model.blocks * block,
            nn.RMSNorm(epsilon=1e-5),
            nn.TiedHead(model.vocabulary, tied_to=(0, 0, 0, 0) if tied else None),
        ],
        input_shape=model.time,
    )


class Tokenizer:
    """Pieces of text by number: what stands longest wins, by the scores of the file."""

    def __init__(self, path: Path, vocabulary: int) -> None:
        data = path.read_bytes()
        self.pieces: list[bytes] = []
        self.scores: list[float] = []
        at = 4  # after the length of the longest piece
        for _ in range(vocabulary):
            score, length = struct.unpack_from("fi", data, at)
            self.pieces.append(data[at + 8 : at + 8 + length])
            self.scores.append(score)
            at += 8 + length
        self.numbers = {piece: number for number, piece in enumerate(self.pieces)}

    def encode(self, text: str) -> list[int]:
        """Cuts a text into pieces: single characters, of which the best pair is joined again and again."""
        tokens = [START]
        if text:
            characters = [character.encode() for character in " " + text]
            # What is no piece is spelled in bytes, which follow three special tokens.
            tokens += [
                token
                for piece in characters
                for token in (
                    [self.numbers[piece]] if piece in self.numbers else [byte + 3 for byte in piece]
                )
            ]
        while True:
            joined = [self.numbers.get(self.pieces[a] + self.pieces[b]) for a, b in pairwise(tokens)]
            known = [place for place, number in enumerate(joined) if number is not None and place > 0]
            if not known:
                return tokens
            best = max(known, key=lambda place: self.scores[joined[place] or 0])
            tokens[best : best + 2] = [joined[best] or 0]

    def decode(self, tokens: list[int]) -> str:
        """Puts pieces together."""
        text = b"".join(self._bytes(token) for token in tokens if token != START)
        return text.decode(errors="replace").removeprefix(" ")

    def _bytes(self, token: int) -> bytes:
        piece = self.pieces[token]
        if piece.startswith(b"<0x") and piece.endswith(b">"):
            return bytes([int(piece[3:5], 16)])
        return piece


def generate(net: loom.Network, prompt: list[int], steps: int) -> list[int]:
    """Continues a prompt by the most likely token, again and again, until a text ends."""
    session = net.session(capacity=len(prompt) + steps)
    tokens = list(prompt)
    scores = session(np.array([prompt]))[0, -1]
    for _ in range(steps):
        token = int(scores.argmax())
        if token == START:
            break
        tokens.append(token)
        scores = session(np.array([[token]]))[0, -1]
    return tokens


def main() -> None:
    """Reads, generates, prints."""
    parser = argparse.ArgumentParser(description="Generates text with a small Llama.")
    parser.add_argument("model", type=Path, help="the weights, as llama2.c has them")
    parser.add_argument("tokenizer", type=Path, help="the pieces of text")
    parser.add_argument("--prompt", default="", help="how the text begins")
    parser.add_argument("--steps", type=int, default=200, help="the most tokens to generate")
    options = parser.parse_args()

    net = read_model(options.model)
    tokenizer = Tokenizer(options.tokenizer, net.output_shape[-1])
    prompt = tokenizer.encode(options.prompt)
    steps = min(options.steps, net.input_shape[0] - len(prompt))
    generate(net, prompt, 1)  # programs are made on the first call
    started = time.perf_counter()
    tokens = generate(net, prompt, steps)
    seconds = time.perf_counter() - started
    print(tokenizer.decode(tokens))
    made = len(tokens) - len(prompt)
    print(f"{made} tokens, {made / seconds:,.0f} a second")


if __name__ == "__main__":
    main()
