"""`loom convert`: a network from one format to another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from loom.command_line.output import write

if TYPE_CHECKING:
    from loom._typing import NumericTypeName

__all__ = ["command"]

_ENDINGS = (".loom", ".safetensors", ".gguf", ".onnx", ".json")


@click.command("convert", epilog="Example: loom convert digits.loom small.loom --dtype int4")
@click.argument("source", metavar="IN", type=click.Path())
@click.argument("target", metavar="OUT", type=click.Path())
@click.option("--dtype", help='What weights are packed as, such as "int8", "int4", "q4_0", "bfloat16".')
@click.option("--keep-masters", is_flag=True, help="Keep full-precision weights in a packed .loom file.")
def command(source: str, target: str, dtype: str | None, *, keep_masters: bool) -> None:
    """Convert a network from any format to another.

    OUT is .loom, .safetensors (weights alone), .gguf, .onnx or .json. With --dtype weights are packed, and a
    .loom file has only what inference reads.
    """
    import json

    from loom.errors import ConfigError, FileError
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
    net = load(source)
    if dtype is not None and ending != ".gguf":
        net.morph(cast("NumericTypeName", dtype))
    if ending == ".loom":
        net.save(path, deploy=dtype is not None and not keep_masters)
    elif ending == ".safetensors":
        net.save_safetensors(path)
    elif ending == ".onnx":
        from loom.models.onnx import save_onnx

        save_onnx(net, path)
    elif ending == ".gguf":
        from loom.models.gguf_writing import save_gguf

        # What it cannot be is refused there.
        save_gguf(net, path, cast("Any", dtype or "float32"))
    else:
        from loom.models.plain import export_model

        try:
            path.write_text(json.dumps(export_model(net)), encoding="utf-8")
        except OSError as error:
            raise FileError(error.errno, f"cannot be written: {error.strerror}", target) from error
    before = f"{Path(source).stat().st_size:,} bytes" if Path(source).is_file() else "a folder"
    write(f"{source} ({before}) -> {target} ({path.stat().st_size:,} bytes)")
