"""Compares families of the Hub with transformers, timm and torchvision, on random small models.

Every case is a model of random weights that the reference makes and saves, in several configurations:
odd widths, grouped heads, tied and untied. loom opens the folder; outputs must agree to 1e-4 in float32, and
what a session decodes greedily, token by token, must be what the reference finds likeliest after each step.

Usage, with an interpreter that has what `VERSIONS` names:

    PYTHONPATH=python python-with-torch tests/golden/hub/make.py
    PYTHONPATH=python python-with-torch tests/golden/hub/make.py --only llama --golden tests/golden/hub

`--golden` writes the first configuration of each case, with inputs and outputs, for tests that have no
reference at hand; `--table` writes the table of docs/models.md.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch
from case_kinds import Case
from cases import CASES

import loom.models

VERSIONS = {
    "torch": "2.15.",
    "transformers": "4.57.1",
    "timm": "1.0.22",
    "torchvision": "0.29.2",
    "safetensors": "0.8.0",
}
TOLERANCE = 1e-4
DECODED = 6


def randomised(model: torch.nn.Module, seed: int) -> torch.nn.Module:
    """Moves every number of a model, those that begin as 0 or 1, too."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            scale = 0.3 if parameter.dim() < 2 else 1.5 / parameter[0].numel() ** 0.5
            noise = scale * torch.randn(parameter.shape, generator=generator)
            parameter.copy_(noise + (parameter if parameter.dim() < 2 else 0))
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.copy_(0.3 * torch.randn(buffer.shape, generator=generator))
            elif name.endswith("running_var"):
                buffer.copy_(0.5 + torch.rand(buffer.shape, generator=generator))
    return model.float().eval()


def compared(case: Case, index: int, folder: Path) -> tuple[float, dict[str, np.ndarray]]:
    """Returns the largest difference of one configuration, and what went in and came out."""
    torch.manual_seed(index)
    model = randomised(case.build(index), 100 * index + 7)
    case.save(model, index, folder)
    worst, arrays = 0.0, {}
    for part in case.parts:
        options = case.options(index) | ({"part": part} if part else {})
        net = loom.models.from_hub(folder, length=case.length(index), **options)
        x = case.inputs(net, index)
        with torch.no_grad():
            expected = case.reference(model, x, part, index).numpy()
        found = net.predict(x)
        if not np.isfinite(expected).all() or np.ptp(expected) == 0:
            raise SystemExit(f"{case.name} {index}: the reference's output says nothing")
        keep = case.kept(x, index)
        if found.shape != expected.shape:
            raise SystemExit(f"{case.name} {index}: shapes {found.shape} and {expected.shape}")
        difference = np.abs(found - expected)[keep] / max(1.0, np.abs(expected[keep]).max())
        worst = max(worst, float(difference.max()))
        if case.configurations[index].get("decodes", case.decodes):
            check_decoding(case, net, model, index, x)
        key = f"{part}." if part else ""
        arrays |= {f"{key}input": x, f"{key}output": expected}
    return worst, arrays


def check_decoding(case: Case, net: loom.Network, model: torch.nn.Module, index: int, x: np.ndarray) -> None:
    """Decodes greedily, and asks the reference about the whole text each time."""
    session = net.session(capacity=x.shape[1] + DECODED)
    text = x[:1]
    scores = session(text)[:, -1]
    for _ in range(DECODED):
        with torch.no_grad():
            expected = case.reference(model, text, None, index).numpy()[:, -1]
        token = int(expected.argmax())
        if int(scores.argmax()) != token:
            raise SystemExit(f"{case.name} {index}: decoding differs after {text.shape[1]} steps")
        if np.abs(scores - expected).max() > TOLERANCE * max(1.0, np.abs(expected).max()):
            raise SystemExit(f"{case.name} {index}: cached scores differ after {text.shape[1]} steps")
        text = np.concatenate([text, [[token]]], axis=1)
        scores = session(text[:, -1:])[:, -1]


def write_golden(case: Case, folder: Path, target: Path, arrays: dict[str, np.ndarray]) -> None:
    """Keeps what tests need: the folder as it was saved, and what went in and came out."""
    place = target / case.name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    for path in sorted(folder.rglob("*")):
        wanted = path.name in case.files or path.suffix == ".safetensors"
        if path.is_file() and wanted:
            (place / path.relative_to(folder)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place / path.relative_to(folder))
    # Inputs are whole numbers, or such that float16 holds them.
    types = {"i": np.int64, "f": np.float32}
    rounded = {
        name: array.astype(
            np.float16 if name.endswith("input") and array.dtype.kind == "f" else types[array.dtype.kind]
        )
        for name, array in arrays.items()
    }
    np.savez_compressed(place / "expected.npz", **rounded)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", help="names of cases")
    parser.add_argument("--golden", type=Path)
    parser.add_argument("--table", type=Path)
    options = parser.parse_args()
    for package, version in VERSIONS.items():
        if not importlib.metadata.version(package).startswith(version):
            raise SystemExit(f"{package} {version} is wanted, {importlib.metadata.version(package)} is there")
    rows = []
    for case in CASES:
        if options.only and case.name not in options.only:
            continue
        worst = 0.0
        for index in range(len(case.configurations)):
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                difference, arrays = compared(case, index, folder)
                print(f"{case.name} {index}: {difference:.1e}", flush=True)
                if difference > TOLERANCE:
                    raise SystemExit(f"{case.name} {index}: differs by {difference:.1e}")
                if options.golden and index == 0:
                    write_golden(case, folder, options.golden, arrays)
            worst = max(worst, difference)
        rows.append((case, worst))
    if options.table:
        write_table(options.table, rows)


def write_table(path: Path, rows: list[tuple[Case, float]]) -> None:
    """Puts the table between its two marks."""
    lines = ["| models | `model_type` | configurations | largest difference |", "|---|---|---|---|"]
    for case, worst in rows:
        cached = ", decoded with a cache" if case.decodes else ""
        lines.append(
            f"| {case.title} | {case.model_type} | {len(case.configurations)}{cached} | {worst:.0e} |"
        )
    text = path.read_text()
    begin, end = "<!-- families -->\n", "<!-- end of families -->"
    before, rest = text.split(begin)
    path.write_text(before + begin + "\n" + "\n".join(lines) + "\n\n" + end + rest.split(end)[1])


if __name__ == "__main__":
    main()
