"""Finds the lines of a text that say what a question asks, by vectors of a sentence encoder.

    python examples/retrieval.py MODEL TEXT "question" [--most N]

MODEL is a folder of the Hugging Face Hub with an encoder of sentences, such as all-MiniLM-L6-v2, or any
language model that loom.text reads; vectors of the latter are means of what goes into its head.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import loom


class Index:
    """Texts, and where each points.

    Args:
        model: Makes vectors.
        texts: The texts.
    """

    def __init__(self, model: loom.text.LanguageModel, texts: list[str]) -> None:
        self._model = model
        self.texts = texts
        self._vectors = self._directions(texts)

    def _directions(self, texts: list[str]) -> NDArray[np.floating]:
        # An encoder reads a number of tokens; what is longer is cut there.
        most = self._model.capacity
        vectors = self._model.embed([self._model.encode(text)[:most] for text in texts])
        directions: NDArray[np.floating] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return directions

    def nearest(self, question: str, most: int) -> list[tuple[float, str]]:
        """Returns the texts that point most nearly where a question does, with the cosines of the angles."""
        cosines = self._vectors @ self._directions([question])[0]
        return [(float(cosines[place]), self.texts[place]) for place in np.argsort(-cosines)[:most]]


def main() -> None:
    """Reads a text, and answers one question."""
    parser = argparse.ArgumentParser(description="Finds lines by what they say.")
    parser.add_argument("model", help="a folder of the Hub, or a GGUF file")
    parser.add_argument("text", type=Path, help="a text file, of which each line is a text")
    parser.add_argument("question")
    parser.add_argument("--most", type=int, default=3, help="how many lines to show")
    options = parser.parse_args()

    lines = [line.strip() for line in options.text.read_text(encoding="utf-8").splitlines() if line.strip()]
    index = Index(loom.text.load(options.model), lines)
    for cosine, line in index.nearest(options.question, options.most):
        print(f"{cosine:.3f}  {line}")


if __name__ == "__main__":
    main()
