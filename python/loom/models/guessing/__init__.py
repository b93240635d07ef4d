"""Networks from tensors alone: what layers they are is guessed from names and shapes, and shown."""

from loom.models.guessing.guesses import Guess, guess

__all__ = ["Guess", "guess"]
