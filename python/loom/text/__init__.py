"""Text: language models that complete, chat and embed, with the tokenizers that they bring along.

Needs the extra "text": `pip install 'loom-nn[text]'`. docs/guides/text.md leads through it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom._settings.spellings import attribute_error
from loom.text.batch import Batch, Told
from loom.text.errors import ContextLengthError
from loom.text.examples import Examples, examples
from loom.text.generation import Completion, Generation
from loom.text.gguf_metadata import save_gguf
from loom.text.loading import is_language_model, load
from loom.text.measuring import perplexity
from loom.text.model import LanguageModel, Options
from loom.text.sampling import Choice, Sampler, Sampling
from loom.text.templates import ChatTemplate
from loom.text.tool_calls import ToolCall, ToolReader
from loom.text.tuning import align, fine_tune
from loom.text.vocabulary import Vocabulary

__all__ = [
    "Batch",
    "ChatTemplate",
    "Choice",
    "Completion",
    "ContextLengthError",
    "Examples",
    "Generation",
    "LanguageModel",
    "Options",
    "Sampler",
    "Sampling",
    "Told",
    "ToolCall",
    "ToolReader",
    "Vocabulary",
    "align",
    "examples",
    "fine_tune",
    "is_language_model",
    "load",
    "perplexity",
    "save_gguf",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        raise attribute_error(__name__, name, __all__)
