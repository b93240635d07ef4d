"""The grid's addresses, and networks as plain configuration."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom import CellConfig, CellIndexError, ConfigError, NetworkConfig, nn
from loom.architecture import LayerSettings
from loom.grid import as_grid, as_shape, coordinates, locate

extents = st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4))


def test_a_pair_is_rows_and_columns() -> None:
    assert as_grid((2, 3)) == (1, 2, 3)
    assert as_grid([4, 2, 3]) == (4, 2, 3)


@pytest.mark.parametrize("grid", [(1,), (1, 1, 1, 1), 3, "12", (0, 1), (1, 2.5)])
def test_other_grids_are_refused(grid) -> None:
    with pytest.raises(ConfigError, match="grid"):
        as_grid(grid)


@pytest.mark.parametrize("shape", [(), (0,), (3, -1), "abc", 2.5, True])
def test_impossible_shapes_are_refused(shape) -> None:
    with pytest.raises(ConfigError, match="input_shape"):
        as_shape(shape)


@given(extents)
def test_data_flows_depth_row_column(grid: tuple[int, int, int]) -> None:
    cells = list(coordinates(grid))
    assert cells == sorted(cells)
    assert len(cells) == len(set(cells)) == grid[0] * grid[1] * grid[2]


@given(extents)
def test_negative_numbers_count_from_the_end(grid: tuple[int, int, int]) -> None:
    for cell in coordinates(grid):
        mirrored = tuple(number - extent for number, extent in zip(cell, grid, strict=True))
        assert locate(grid, cell) == locate(grid, mirrored) == (cell, None)
        assert locate(grid, (*cell, 5)) == (cell, 5)


def test_two_numbers_address_a_flat_grid_only() -> None:
    assert locate((1, 2, 3), (1, 2)) == ((0, 1, 2), None)
    with pytest.raises(CellIndexError, match=r"a cell is addressed as \[depth, row, column\], a layer"):
        locate((2, 2, 3), (1, 2))


@pytest.mark.parametrize(
    "index", [0, (0,), (0, 0, 0, 0, 0), (0, 0, 1.5), ("a", 0, 0), None, (0, slice(2), 0)]
)
def test_other_addresses_are_refused(index: object) -> None:
    with pytest.raises(CellIndexError, match="a cell is addressed as"):
        locate((2, 2, 2), index)


def test_an_address_outside_says_what_would_be_inside() -> None:
    with pytest.raises(CellIndexError, match="row 2 is outside the grid, whose row runs from 0 to 1"):
        locate((1, 2, 3), (0, 2, 0))


def test_network_configuration_to_json_and_back() -> None:
    config = NetworkConfig(
        input_shape=(1, 28, 28),
        grid=(1, 2),
        cells=[
            CellConfig((0, 0, 1), [nn.Flatten(), nn.Dense(10)]),
            CellConfig((0, 0, 0), [nn.Conv2D(8, 3, activation="relu"), nn.MaxPool2D(2)]),
        ],
        seed=3,
        settings=[LayerSettings((0, 0, 1, 1), trainable=False, dtype="int8")],
    )
    assert [cell.at for cell in config.cells] == [(0, 0, 0), (0, 0, 1)]
    read = json.loads(json.dumps(config.to_config()))
    assert set(read) == {"input_shape", "grid", "cells", "precision", "seed", "settings", "links"}
    assert read["cells"][1]["layers"][0] == {"type": "flatten"}
    assert NetworkConfig.from_config(read) == config


def test_empty_cells_are_left_out() -> None:
    assert NetworkConfig((8,), cells=[CellConfig((0, 0, 0))]).cells == ()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"input_shape": [8], "gird": [1, 1]}, 'unknown NetworkConfig setting "gird"; did you mean "grid"'),
        ({"grid": [1, 1]}, "missing setting input_shape"),
        ({"input_shape": [8], "precision": "float16"}, 'unknown NetworkConfig precision "float16"'),
        ({"input_shape": [8], "cells": [{"at": [0, 0, 1]}]}, "lies outside the grid"),
        ({"input_shape": [8], "cells": [{"at": [0, 0, 0]}, {"at": [0, 0, 0]}]}, "named twice"),
        ({"input_shape": [8], "settings": [{"at": [0, 0, 0]}]}, r"at must be \(depth, row, column, layer\)"),
        ({"input_shape": [8], "cells": [{"at": [0, 0]}]}, r"at must be \(depth, row, column\)"),
        ({"input_shape": [8], "cells": [{"at": [0, 0, 0], "layers": ["dense"]}]}, "expected a layer such as"),
    ],
)
def test_malformed_networks_are_refused(config: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        NetworkConfig.from_config(config)


def test_an_activation_function_alone_becomes_a_layer() -> None:
    cell = CellConfig((0, 0, 0), [nn.LeakyReLU(0.2)])  # type: ignore[list-item]
    assert cell.layers == (nn.Activation(nn.LeakyReLU(0.2)),)
