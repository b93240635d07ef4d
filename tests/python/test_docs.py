"""The examples in the documentation run and give what they say."""

from __future__ import annotations

import doctest
import pkgutil
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import activations

README = Path(__file__).parents[2] / "README.md"
MODULES = sorted(
    module.name for module in pkgutil.walk_packages(loom.__path__, "loom.") if module.name != "loom._native"
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str) -> None:
    module = import_module(name)
    results = doctest.testmod(module, extraglobs={"loom": loom, "nn": loom.nn, "np": np})
    assert results.failed == 0


@pytest.mark.parametrize(
    "page", sorted(Path(__file__).parents[2].glob("docs/**/*.md")), ids=lambda page: page.name
)
def test_code_in_pages_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(compile(block, str(page), "exec"), names)


API = "\n".join(page.read_text() for page in (README.parent / "docs" / "api").glob("*.md"))
REFERRED = set(re.findall(r"^::: (\S+)$", API, re.MULTILINE))


@pytest.mark.parametrize("name", [name for name in loom.__all__ if name != "__version__"])
def test_every_public_name_is_in_the_reference(name: str) -> None:
    made = getattr(loom, name)
    modules = [import_module(each) for each in REFERRED if each in MODULES]
    listed = [module for module in modules if name in module.__all__ and getattr(module, name) is made]
    assert f"loom.{name}" in REFERRED or listed


@pytest.mark.parametrize("package", sorted(REFERRED.intersection(MODULES)))
def test_what_has_the_name_of_its_module_is_in_the_reference_as_well(package: str) -> None:
    for name in import_module(package).__all__:
        if f"{package}.{name}" in MODULES:
            # By this name the page's maker finds the module.
            assert f"{package}.{name}.{name}" in REFERRED


def test_the_readme_counts_what_there_is() -> None:
    rows = dict(re.findall(r"^\| ([a-z ]+) \| (.*) \|$", README.read_text(), re.MULTILINE))
    assert rows["weight types"].split(", ") == [entry.name for entry in loom.dtypes()]
    softmaxes = [name for name in loom.nn.__all__ if name.endswith(("Softmax", "Sparsemax", "Entmax"))]
    assert len(softmaxes) == 9
    assert "Softmax and eight of its kin" in rows["layers"]


def readme_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def run(blocks: list[str], names: dict[str, Any]) -> dict[str, Any]:
    for block in blocks:
        exec(compile(block, str(README), "exec"), names)
    return names


def test_the_readme_s_first_blocks_run_and_give_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    first, packs, *_ = readme_blocks()
    # A few epochs tell as much of all but the accuracy.
    assert "epochs=20" in first
    names = run([first.replace("epochs=20", "epochs=4"), packs], {})
    net, again, (x_test, y_test) = names["net"], names["again"], (names["x_test"], names["y_test"])
    assert names["x"].shape == (1437, 1, 8, 8)
    plain = sum(values.nbytes for layer in net.layers for values in layer.parameters.values())
    assert 0.25 <= again.weight_bytes / plain < 0.27
    assert net.evaluate((x_test, y_test))["accuracy"] > 0.8
    # With its master a file is no smaller; without it a little more than a quarter.
    sizes = {path.stem: path.stat().st_size for path in tmp_path.glob("*.loom")}
    assert sizes["packed"] > sizes["digits"] > 3 * sizes["small"]
    np.testing.assert_array_equal(
        loom.load("small.loom").predict(x_test), loom.load("packed.loom").predict(x_test)
    )
    assert "accuracy" in capsys.readouterr().out


def test_the_readme_s_other_blocks_run_on_a_gpu(
    gpu: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first, *others = readme_blocks()
    assert any("gpu" in block for block in others)
    names = run([first.replace("epochs=20", "epochs=1")], {})
    loom.reset_frame_statistics()
    run(others, names)
    assert names["net"].device.startswith("gpu")
    found = loom.frame_statistics()
    # How many steps go into a frame is a matter of their time; a frame has a limit of its own.
    assert found.steps == -(-len(names["x"]) // 32)
    assert found.dispatches <= 512 * found.submits


def row(of: str) -> list[str]:
    """Returns what the README's table lists."""
    found = re.search(rf"^\| {of} \| (.*) \|$", README.read_text(), re.MULTILINE)
    assert found, of
    return found[1].split(", ")


def test_the_readme_lists_what_there_is() -> None:
    assert row("weight types") == [entry.name for entry in loom.dtypes()]
    assert f"There are {len(loom.dtypes())} types" in README.read_text()
    assert sorted(row("losses")) == sorted(loom.losses.names())
    assert sorted(row("activations")) == sorted(activations.names())
    rules = {name for name, made in vars(loom.optimizers).items() if is_kind(made, loom.optimizers.Optimizer)}
    assert set(row("optimizers")) == rules
    kinds = {made.kind for made in vars(loom.schedules).values() if is_kind(made, loom.schedules.Schedule)}
    assert kinds == {SCHEDULES.get(name, name) for name in row("schedules")}


SCHEDULES = {
    "cosine with restarts": "cosine_restarts",
    "one-cycle": "one_cycle",
    "warm-up before any": "warmup",
    "any by epochs": "epochs",
}


def is_kind(made: object, base: type) -> bool:
    return isinstance(made, type) and issubclass(made, base) and made is not base


def test_the_readme_counts_softmaxes() -> None:
    words = ("six", "seven", "eight", "nine", "ten")
    kin = len(import_module("loom.nn.softmax").__all__) - 1
    assert f"Softmax and {words[kin - 6]} of its kin" in README.read_text()


def test_every_layer_has_its_row_in_the_table() -> None:
    table = (README.parent / "docs" / "layers.md").read_text()
    names = [layer.layer.__name__ for layer in loom.layers()]
    # Examples and other tests compose layers of their own.
    for name in filter(loom.nn.__all__.__contains__, names):
        assert re.search(rf"\b{re.sub(r'[123]D$', '', name)}", table), name


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    modules = [import_module(name) for name in MODULES if name.startswith("loom.nn.")]
    examples = [example for module in modules for test in finder.find(module) for example in test.examples]
    assert len(examples) >= 10
