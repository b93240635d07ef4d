"""The check of imports finds what leads upwards and in circles; the package has neither."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
TABLE = """
[[floor]]
name = "sky"
holds = ["__init__"]

[[floor]]
name = "roof"
holds = ["roof"]

[[floor]]
name = "rooms"
holds = ["kitchen", "bedroom"]

[[floor]]
name = "ground"
holds = ["ground"]
"""
SOUND = {
    "__init__.py": "from house import roof",
    "roof.py": "from house.kitchen import stove\nimport house.ground",
    "kitchen/__init__.py": "from house.kitchen.stove import Stove",
    "kitchen/stove.py": "import os\nfrom house import ground",
    "bedroom.py": "",
    "ground.py": "",
}


@pytest.fixture(scope="module")
def check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("floors_python", ROOT / "tools/floors/python.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def built(folder: Path, **changed: str) -> list[str]:
    """Writes a package, some of its files changed, and its table; returns what the check is called with."""
    package = folder / "house"
    replaced = {f"{name.replace('__', '/')}.py": text for name, text in changed.items()}
    for name, text in {**SOUND, **replaced}.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    (folder / "table.toml").write_text(TABLE)
    return [str(package), str(folder / "table.toml")]


def test_the_package_is_clean(check: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main([]) == 0, capsys.readouterr().out


def test_a_sound_package_is_clean(
    check: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check.main(built(tmp_path)) == 0
    assert capsys.readouterr().out == "6 modules, 5 imports, 0 wrong\n"


@pytest.mark.parametrize(
    "text",
    [
        "from house.roof import tile",
        "from house import roof",
        "import house.roof",
        "from .roof import tile",
        "def late():\n    from house.roof import tile",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from house.roof import tile",
        "import importlib\nimportlib.import_module('house.roof')",
    ],
    ids=["from", "module", "plain", "relative", "in a function", "for types", "by name"],
)
def test_an_import_that_leads_upwards_is_found(
    check: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    assert check.main(built(tmp_path, bedroom=text)) == 1
    line = text.count("\n") + 1
    assert f'house.bedroom, line {line}: house.roof is up to "roof" from "rooms"' in capsys.readouterr().out


def test_an_import_of_a_neighbour_is_found(
    check: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check.main(built(tmp_path, bedroom="from house.kitchen.stove import Stove")) == 1
    assert 'house.kitchen.stove is sideways to "rooms" from "rooms"' in capsys.readouterr().out


def test_a_circle_inside_of_a_folder_is_found(
    check: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = {
        "kitchen__stove": "def cook():\n    from house.kitchen.pot import Pot",
        "kitchen__pot": "from house.kitchen.table import Table",
        "kitchen__table": "from .stove import Stove",
    }
    assert check.main(built(tmp_path, **changed)) == 1
    named = "house.kitchen.pot, house.kitchen.stove, house.kitchen.table"
    assert f"a circle of imports: {named}\n" in capsys.readouterr().out


def test_a_module_without_a_floor_and_a_floor_without_a_module_are_found(
    check: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package, table = built(tmp_path, cellar="")
    (Path(package) / "bedroom.py").unlink()
    assert check.main([package, table]) == 1
    found = capsys.readouterr().out
    assert "cellar stands on no floor" in found
    assert 'bedroom of floor "rooms" is not there' in found


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("def look(stove):\n    return stove._fire", False),
        ("def look(house):\n    house.stove()._fire = 1", False),
        ("class Stove:\n    def light(self, other):\n        self._fire = other._fire", True),
        ("class Lit:\n    _fire: int\ndef look(stove):\n    return stove._fire", True),
        ("class Stove(Oven):\n    def look(self):\n        return self._fire", True),
        ("import sys\ndef look():\n    return sys._getframe(), look.__doc__", True),
    ],
    ids=["read", "set", "own class", "declared", "inherited", "a module's"],
)
def test_a_private_attribute_of_another_file_is_found(
    check: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, allowed: bool
) -> None:
    assert check.main(built(tmp_path, bedroom=text)) == (0 if allowed else 1)
    assert ("_fire is another file's" in capsys.readouterr().out) is not allowed
