"""`loom tune`: trains a language model further on texts of one's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from loom.command_line.output import write
from loom.command_line.text_options import model_options, opened

if TYPE_CHECKING:
    from loom.text import LanguageModel

__all__ = ["command"]

_KEPT: tuple[Literal["float16", "bfloat16", "q4_0", "q8_0"], ...] = ("float16", "bfloat16", "q4_0", "q8_0")
"""What a GGUF file has weights as where the model has them so; of others it has the numbers."""


@click.command("tune", epilog="Example: loom tune SmolLM2-135M chats.jsonl --output adapter --dtype int4")
@click.argument("model", type=click.Path())
@click.argument("data", type=click.Path())
@click.option("--output", required=True, type=click.Path(), help="The folder for the adapter.")
@click.option("--rank", default=8, show_default=True, help="Numbers between the adapter's two factors.")
@click.option("--alpha", type=float, help="Its scale times the rank; twice the rank by default.")
@click.option("--dropout", default=0.0, show_default=True, help="The adapter's, in training.")
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="NAME",
    help="A product to adapt, such as query; as often as need be, every one by default.",
)
@click.option("--rank-stabilized", is_flag=True, help="Divide alpha by the root of the rank.")
@click.option("--decomposed", is_flag=True, help="Give outputs lengths of their own (DoRA).")
@click.option("--length", type=int, help="Most tokens of a row; those of the longest by default.")
@click.option("--join", is_flag=True, help="Put texts one behind the other and cut them into rows.")
@click.option("--pack", is_flag=True, help="Put several rows into one, each read by itself.")
@click.option("--cut", is_flag=True, help="Cut rows that are longer than --length.")
@click.option("--all-tokens", is_flag=True, help="Learn prompts, too, not completions alone.")
@click.option("--epochs", default=1, show_default=True, help="How often the data is passed.")
@click.option("--batch-size", default=8, show_default=True, help="Rows, or pairs, of a step.")
@click.option("--learning-rate", type=float, help="2e-4 by default, 5e-5 for pairs.")
@click.option("--beta", default=0.1, show_default=True, help="For pairs: how dear it is to change.")
@click.option("--seed", default=0, show_default=True, help="Of the order of rows.")
@click.option("--base", default="", help="What the adapter's file is to call the model.")
@click.option(
    "--merge",
    type=click.Path(),
    help="Also write the whole network, merged: to a .gguf file, which is a model, or one of loom's.",
)
@model_options
def command(
    model: str,
    data: str,
    output: str,
    dtype: str | None,
    capacity: int | None,
    device: str,
    **options: Any,  # noqa: ANN401 - each as its option says
) -> int:
    """Train the language model in MODEL on the texts in DATA.

    MODEL is a folder of the Hugging Face Hub, or a GGUF file. DATA has one row a line in JSON: {"text": ...},
    {"prompt": ..., "completion": ...}, {"messages": [...]}, or pairs to prefer one of, {"prompt": ...,
    "chosen": ..., "rejected": ...}; or it is a .txt file, which is one text. An adapter is trained beside the
    weights and written in peft's format. Needs the extra "text".
    """
    from loom.errors import ConfigError
    from loom.optimizers import AdamW
    from loom.text.tuning import align, fine_tune
    from loom.training.config import TrainingConfig

    rows = _rows(Path(data))
    pairs = isinstance(rows[0], dict) and "chosen" in rows[0]
    tuned = opened(model, dtype, None, capacity, device)
    config = TrainingConfig(
        epochs=options["epochs"],
        batch_size=options["batch_size"],
        learning_rate=options["learning_rate"] or (5e-5 if pairs else 2e-4),
        optimizer=AdamW(),
        loss="cross_entropy",
        gradient_clip=1.0,
        seed=options["seed"],
        device=device,
    )
    taken = ("rank", "alpha", "dropout", "rank_stabilized", "decomposed", "length", "cut")
    adapter = {name: options[name] for name in taken}
    adapter["targets"] = options["targets"] or None
    if pairs:
        result = align(tuned, rows, config, beta=options["beta"], **adapter)
    else:
        told = {"join": options["join"], "pack": options["pack"], "completions": not options["all_tokens"]}
        result = fine_tune(tuned, rows, config, **adapter, **told)
    write(repr(result))
    base = options["base"] or model
    try:
        tuned.network.save_adapter(output, base=base)
    except ConfigError:
        # What was learned is kept in any case.
        tuned.network.save_adapter(output, base=base, modules="loom")
        write("weights have no names in Llama's family: the adapter has loom's own, which peft does not know")
    write(f"saved {output}")
    if options["merge"] is not None:
        tuned.network.merge_adapters()
        _save(tuned, Path(options["merge"]))
        write(f"saved {options['merge']}")
    return 130 if result.interrupted else 0


def _save(model: LanguageModel, path: Path) -> None:
    """Writes the whole model, or of another ending its network."""
    from loom.text import save_gguf

    if path.suffix != ".gguf":
        model.network.save(path)
        return
    kept = model.network.layers[0].dtype
    save_gguf(model, path, next((each for each in _KEPT if each == kept), "float32"))


def _rows(path: Path) -> list[Any]:
    from loom.errors import DataError, FileError

    try:
        # Some programs begin text with a byte order mark.
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: this is not text in UTF-8: {error}") from error
    if path.suffix == ".txt":
        return [text]
    rows = []
    # JSON has other ends of lines, such as U+2028, within its texts.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise DataError(f"{path}: line {number} is not JSON: {error}") from error
    if not rows:
        raise DataError(f"{path}: there are no rows")
    return rows
