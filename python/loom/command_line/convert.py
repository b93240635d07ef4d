"""`loom convert`: a network from one format to another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from loom.command_line.completion import numeric_types
from loom.command_line.output import write

if TYPE_CHECKING:
    from loom._typing import NumericTypeName

__all__ = ["command"]

_ENDINGS = (".loom", ".safetensors", ".gguf", ".onnx", ".json")


@click.command("convert", epilog="Example: loom convert digits.loom small.loom --dtype int4")
@click.argument("source", metavar="IN", type=click.Path())
@click.argument("target", metavar="OUT", type=click.Path())
@click.option(
    "--dtype",
    shell_complete=numeric_types,
    help='What weights are packed as, such as "int8", "int4", "q4_0", "bfloat16".',
)
@click.option("--keep-masters", is_flag=True, help="Keep full-precision weights in a packed .loom file.")
@click.option("--no-tokenizer", is_flag=True, help="Leave the tokenizer out of a .gguf file.")
def command(source: str, target: str, dtype: str | None, *, keep_masters: bool, no_tokenizer: bool) -> None:
    """Convert a network from any format to another.

    OUT is .loom, .safetensors (weights alone), .gguf, .onnx or .json. With --dtype weights are packed, and a
    .loom file has only what inference reads. From a folder of the Hugging Face Hub's shape to .gguf, and to
    .loom with --dtype, tensors go one by one: memory holds no more than the new file and one of them.
    """
    import json

    from loom.errors import ConfigError, FileError
    from loom.models.formats import format_of
    from loom.models.loading import load

    path = Path(target)
    ending = path.suffix.lower()
    if ending not in _ENDINGS:
        raise click.BadParameter(f"{target}: known endings are {', '.join(_ENDINGS)}", param_hint="'OUT'")
    if ending in (".safetensors", ".json") and dtype is not None:
        raise click.BadParameter(
            f"{ending} files hold the masters; leave --dtype out", param_hint="'--dtype'"
        )
    if path.exists() and Path(source).exists() and path.samefile(source):
        raise ConfigError(f"{target} is the file that is to be converted; give another one")
    found = format_of(Path(source)).name
    if ending == ".gguf":
        _to_gguf(source, path, dtype or "float32", found, tokenizer=not no_tokenizer)
        _told(source, path)
        return
    if ending == ".loom" and found == "hugging face" and dtype is not None and not keep_masters:
        from loom.models.hub import from_hub

        plain = dtype in ("float32", "float64")
        from_hub(source, dtype, masters=plain).save(path, deploy=True)
        _told(source, path)
        return
    net = load(source)
    if dtype is not None:
        net.morph(cast("NumericTypeName", dtype))
    if ending == ".loom":
        net.save(path, deploy=dtype is not None and not keep_masters)
    elif ending == ".safetensors":
        net.save_safetensors(path)
    elif ending == ".onnx":
        from loom.models.onnx import save_onnx

        save_onnx(net, path)
    else:
        from loom.models.plain import export_model

        try:
            path.write_text(json.dumps(export_model(net)), encoding="utf-8")
        except OSError as error:
            raise FileError(error.errno, f"cannot be written: {error.strerror}", target) from error
    _told(source, path)


def _told(source: str, path: Path) -> None:
    before = f"{Path(source).stat().st_size:,} bytes" if Path(source).is_file() else "a folder"
    write(f"{source} ({before}) -> {path} ({path.stat().st_size:,} bytes)")


def _to_gguf(source: str, path: Path, dtype: str, found: str, *, tokenizer: bool) -> None:
    """Writes GGUF, with the tokenizer that a model came with."""
    from loom.models.gguf.writing import convert_hub, save_gguf
    from loom.models.loading import load
    from loom.tensors import open_tensors

    if found == "hugging face":
        convert_hub(source, path, dtype, _of_folder(Path(source)) if tokenizer else None)
        return
    metadata = None
    if found == "gguf" and tokenizer:
        with open_tensors(source) as file:
            metadata = {name: value for name, value in file.metadata.items() if name.startswith("tokenizer.")}
    # What it cannot be is refused there.
    save_gguf(load(source), path, cast("Any", dtype), metadata)


def _of_folder(folder: Path) -> dict[str, object] | None:
    """What a folder's tokenizer is in GGUF; None where it has none."""
    from loom.errors import ConfigError
    from loom.text.gguf_metadata import to_metadata
    from loom.text.hub_files import has_tokenizer, read_folder

    if not has_tokenizer(folder):
        return None
    try:
        return to_metadata(read_folder(folder))
    except ConfigError as error:
        raise ConfigError(f"{error}; --no-tokenizer leaves it out") from error
