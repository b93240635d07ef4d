"""Layer configurations: defaults, checks, JSON and back."""

from __future__ import annotations

import json

import numpy as np
import pytest

from loom import ConfigError, initializers, nn

EXAMPLES: list[tuple[nn.Layer, dict[str, object]]] = [
    (
        nn.Dense(10),
        {
            "type": "dense",
            "units": 10,
            "activation": "linear",
            "bias": True,
            "weight_initializer": None,
            "bias_initializer": None,
        },
    ),
    (
        nn.Dense(4, activation=nn.LeakyReLU(0.2), bias=False, weight_initializer=initializers.Normal(0.02)),
        {
            "type": "dense",
            "units": 4,
            "activation": {"leaky_relu": {"slope": 0.2}},
            "bias": False,
            "weight_initializer": {"normal": {"std": 0.02}},
            "bias_initializer": None,
        },
    ),
    (
        nn.Conv2D(32, 3, stride=(1, 2), padding="same", groups=2, activation="relu"),
        {
            "type": "conv2d",
            "filters": 32,
            "kernel_size": [3, 3],
            "stride": [1, 2],
            "padding": "same",
            "dilation": [1, 1],
            "groups": 2,
            "activation": "relu",
            "bias": True,
            "weight_initializer": None,
            "bias_initializer": None,
        },
    ),
    (
        nn.MaxPool2D(2),
        {"type": "max_pool2d", "pool_size": [2, 2], "stride": [2, 2], "padding": [0, 0], "ceil_mode": False},
    ),
    (
        nn.AvgPool2D((3, 2), stride=1, padding=1, count_include_pad=False),
        {
            "type": "avg_pool2d",
            "pool_size": [3, 2],
            "stride": [1, 1],
            "padding": [1, 1],
            "ceil_mode": False,
            "count_include_pad": False,
        },
    ),
    (nn.GlobalAvgPool2D(), {"type": "global_avg_pool2d"}),
    (
        nn.Conv1D(8, 5, stride=2),
        {
            "type": "conv1d",
            "filters": 8,
            "kernel_size": [5],
            "stride": [2],
            "padding": [0],
            "dilation": [1],
            "groups": 1,
            "activation": "linear",
            "bias": True,
            "weight_initializer": None,
            "bias_initializer": None,
        },
    ),
    (
        nn.Conv3D(6, (1, 3, 3), padding=(0, 1, 1), dilation=2, groups=3, bias=False),
        {
            "type": "conv3d",
            "filters": 6,
            "kernel_size": [1, 3, 3],
            "stride": [1, 1, 1],
            "padding": [0, 1, 1],
            "dilation": [2, 2, 2],
            "groups": 3,
            "activation": "linear",
            "bias": False,
            "weight_initializer": None,
            "bias_initializer": None,
        },
    ),
    (
        nn.ConvTranspose1D(4, 3, stride=2, padding=1, output_padding=1, activation="relu"),
        {
            "type": "conv_transpose1d",
            "filters": 4,
            "kernel_size": [3],
            "stride": [2],
            "padding": [1],
            "output_padding": [1],
            "dilation": [1],
            "groups": 1,
            "activation": "relu",
            "bias": True,
            "weight_initializer": None,
            "bias_initializer": None,
        },
    ),
    (
        nn.ConvTranspose2D(4, 3, stride=2, padding=1, output_padding=1, activation="relu"),
        {
            "type": "conv_transpose2d",
            "filters": 4,
            "kernel_size": [3, 3],
            "stride": [2, 2],
            "padding": [1, 1],
            "output_padding": [1, 1],
            "dilation": [1, 1],
            "groups": 1,
            "activation": "relu",
            "bias": True,
            "weight_initializer": None,
            "bias_initializer": None,
        },
    ),
    (
        nn.ConvTranspose3D(4, 3, stride=2, padding=1, output_padding=1, activation="relu"),
        {
            "type": "conv_transpose3d",
            "filters": 4,
            "kernel_size": [3, 3, 3],
            "stride": [2, 2, 2],
            "padding": [1, 1, 1],
            "output_padding": [1, 1, 1],
            "dilation": [1, 1, 1],
            "groups": 1,
            "activation": "relu",
            "bias": True,
            "weight_initializer": None,
            "bias_initializer": None,
        },
    ),
    (
        nn.MaxPool1D(3, padding=1),
        {"type": "max_pool1d", "pool_size": [3], "stride": [3], "padding": [1], "ceil_mode": False},
    ),
    (
        nn.MaxPool3D((1, 2, 2), stride=2),
        {
            "type": "max_pool3d",
            "pool_size": [1, 2, 2],
            "stride": [2, 2, 2],
            "padding": [0, 0, 0],
            "ceil_mode": False,
        },
    ),
    (
        nn.AvgPool1D(2),
        {
            "type": "avg_pool1d",
            "pool_size": [2],
            "stride": [2],
            "padding": [0],
            "ceil_mode": False,
            "count_include_pad": True,
        },
    ),
    (
        nn.AvgPool3D(3, stride=(1, 2, 2), padding=1),
        {
            "type": "avg_pool3d",
            "pool_size": [3, 3, 3],
            "stride": [1, 2, 2],
            "padding": [1, 1, 1],
            "ceil_mode": False,
            "count_include_pad": True,
        },
    ),
    (nn.GlobalMaxPool1D(), {"type": "global_max_pool1d"}),
    (nn.GlobalMaxPool2D(), {"type": "global_max_pool2d"}),
    (nn.GlobalMaxPool3D(), {"type": "global_max_pool3d"}),
    (nn.GlobalAvgPool1D(), {"type": "global_avg_pool1d"}),
    (nn.GlobalAvgPool3D(), {"type": "global_avg_pool3d"}),
    (nn.Flatten(), {"type": "flatten"}),
    (nn.Reshape((1, -1)), {"type": "reshape", "shape": [1, -1]}),
    (nn.Dropout(0.5), {"type": "dropout", "rate": 0.5}),
    (nn.SpatialDropout2D(0.5), {"type": "spatial_dropout2d", "rate": 0.5}),
    (nn.GaussianNoise(0.5), {"type": "gaussian_noise", "standard_deviation": 0.5}),
    (nn.UpSampling1D(2), {"type": "up_sampling1d", "scale": [2], "mode": "nearest"}),
    (nn.UpSampling2D(2, "bilinear"), {"type": "up_sampling2d", "scale": [2, 2], "mode": "bilinear"}),
    (nn.AdaptiveAvgPool2D((2, 3)), {"type": "adaptive_avg_pool2d", "size": [2, 3]}),
    (nn.AdaptiveMaxPool3D(2), {"type": "adaptive_max_pool3d", "size": [2, 2, 2]}),
    (nn.PixelShuffle(2), {"type": "pixel_shuffle", "factor": 2}),
    (nn.PixelUnshuffle(2), {"type": "pixel_unshuffle", "factor": 2}),
    (nn.Crop2D((1, 0)), {"type": "crop2d", "before": [1, 0], "after": None}),
    (nn.InstanceNorm(), {"type": "instance_norm", "epsilon": 1e-5, "gain": True, "bias": True}),
    (nn.Activation("gelu_tanh"), {"type": "activation", "function": "gelu_tanh"}),
    (nn.PReLU(True), {"type": "prelu", "per_channel": True, "initial": 0.25}),
    (nn.Activation(nn.ELU(0.5)), {"type": "activation", "function": {"elu": {"alpha": 0.5}}}),
    (nn.Softmax(temperature=2), {"type": "softmax", "temperature": 2.0}),
    (nn.Permute((1, 0)), {"type": "permute", "axes": [1, 0]}),
    (nn.Sequential(nn.Flatten()), {"type": "sequential", "layers": [{"type": "flatten"}]}),
    (nn.Checkpoint(nn.Flatten()), {"type": "checkpoint", "layers": [{"type": "flatten"}]}),
    (nn.Masked([nn.Flatten()], value=-1), {"type": "masked", "layers": [{"type": "flatten"}], "value": -1.0}),
    (
        nn.Residual(nn.Activation("relu")),
        {"type": "residual", "layers": [{"type": "activation", "function": "relu"}], "projection": []},
    ),
    (
        nn.Parallel([nn.Flatten(), []], combine="grid_scatter", grid=(1, 2), places=[(0, 1), (0, 0)]),
        {
            "type": "parallel",
            "branches": [[{"type": "flatten"}], []],
            "combine": "grid_scatter",
            "axis": None,
            "grid": [1, 2],
            "places": [[0, 1], [0, 0]],
            "gate": [],
        },
    ),
    (nn.GridSoftmax(3, 4), {"type": "grid_softmax", "rows": 3, "columns": 4}),
    (nn.HierarchicalSoftmax(3, 12), {"type": "hierarchical_softmax", "groups": 3, "leaves": 12}),
    (nn.HierarchicalSoftmax(2, [3, 5]), {"type": "hierarchical_softmax", "groups": 2, "leaves": [3, 5]}),
    (nn.AdaptiveSoftmax((10, 100)), {"type": "adaptive_softmax", "cutoffs": [10, 100]}),
    (nn.MixtureSoftmax(4), {"type": "mixture_softmax", "components": 4}),
    (nn.GumbelSoftmax(0.5), {"type": "gumbel_softmax", "temperature": 0.5}),
    (nn.MaskedSoftmax(axis=0), {"type": "masked_softmax", "mask": None, "axis": 0}),
    (nn.MaskedSoftmax([True, False]), {"type": "masked_softmax", "mask": [True, False], "axis": -1}),
    (nn.Sparsemax(), {"type": "sparsemax"}),
    (nn.Entmax(1.25), {"type": "entmax", "alpha": 1.25}),
    (nn.LayerNorm(axes=2), {"type": "layer_norm", "axes": 2, "epsilon": 1e-5, "gain": True, "bias": True}),
    (nn.RMSNorm(gain=False), {"type": "rms_norm", "epsilon": 1e-6, "gain": False}),
    (
        nn.GroupNorm(4, bias=False),
        {"type": "group_norm", "groups": 4, "epsilon": 1e-5, "gain": True, "bias": False},
    ),
    (
        nn.BatchNorm(),
        {
            "type": "batch_norm",
            "momentum": 0.1,
            "epsilon": 1e-5,
            "gain": True,
            "bias": True,
            "synchronized": False,
        },
    ),
    (
        nn.KMeans(3, temperature=2),
        {"type": "kmeans", "clusters": 3, "temperature": 2.0, "centroid_initializer": None},
    ),
    (
        nn.RNN(3, activation="relu", stateful=True),
        {
            "type": "rnn",
            "units": 3,
            "layers": 1,
            "bidirectional": False,
            "return_sequences": False,
            "bias": True,
            "dropout": 0.0,
            "stateful": True,
            "initial_state": "zeros",
            "weight_initializer": None,
            "recurrent_initializer": None,
            "activation": "relu",
        },
    ),
    (
        nn.LSTM(4, layers=2, bidirectional=True, return_sequences=True, dropout=0.1, initial_state="learned"),
        {
            "type": "lstm",
            "units": 4,
            "layers": 2,
            "bidirectional": True,
            "return_sequences": True,
            "bias": True,
            "dropout": 0.1,
            "stateful": False,
            "initial_state": "learned",
            "weight_initializer": None,
            "recurrent_initializer": None,
        },
    ),
    (
        nn.GRU(5, bias=False, weight_initializer="he_normal", recurrent_initializer="zeros"),
        {
            "type": "gru",
            "units": 5,
            "layers": 1,
            "bidirectional": False,
            "return_sequences": False,
            "bias": False,
            "dropout": 0.0,
            "stateful": False,
            "initial_state": "zeros",
            "weight_initializer": "he_normal",
            "recurrent_initializer": "zeros",
            "reset_after": True,
        },
    ),
    (
        nn.MultiHeadAttention(
            4, key_value_heads=2, causal=True, rotary=nn.Rotary(scaling=2), mask=[[1, 0], [1, 1]]
        ),
        {
            "type": "multi_head_attention",
            "heads": 4,
            "key_value_heads": 2,
            "head_dim": None,
            "causal": True,
            "window": None,
            "rotary": {
                "base": 10000.0,
                "scaling": 2.0,
                "layout": "interleaved",
                "dim": None,
                "rule": None,
            },
            "qk_norm": False,
            "bias": True,
            "cross": False,
            "mask": [[1, 0], [1, 1]],
            "weight_initializer": None,
            "scale": None,
            "soft_cap": None,
            "qk_norm_epsilon": 1e-06,
            "output_bias": None,
            "dropout": 0.0,
            "position_bias": None,
        },
    ),
    (
        nn.SwiGLU(682),
        {
            "type": "swiglu",
            "hidden": 682,
            "bias": False,
            "weight_initializer": None,
            "activation": "silu",
        },
    ),
    (
        nn.GeGLU(8, bias=True, activation="gelu_tanh"),
        {
            "type": "geglu",
            "hidden": 8,
            "bias": True,
            "weight_initializer": None,
            "activation": "gelu_tanh",
        },
    ),
    (nn.Embedding(9, 4), {"type": "embedding", "vocabulary": 9, "width": 4, "weight_initializer": None}),
    (
        nn.TiedHead(9, tied_to=(0, 0, 0, 0)),
        {"type": "tied_head", "vocabulary": 9, "tied_to": [0, 0, 0, 0], "weight_initializer": None},
    ),
    (
        nn.PositionalEmbedding(64),
        {"type": "positional_embedding", "max_time": 64, "weight_initializer": None},
    ),
    (
        nn.SinusoidalPositions(),
        {"type": "sinusoidal_positions", "max_time": 4096, "base": 10000.0},
    ),
]


@pytest.mark.parametrize(("layer", "config"), EXAMPLES)
def test_json_and_back(layer: nn.Layer, config: dict[str, object]) -> None:
    assert layer.to_config() == config
    read = json.loads(json.dumps(layer.to_config()))
    assert nn.layer_from_config(read) == layer
    assert type(layer).from_config(read) == layer


def test_names_with_a_parameter_get_their_default() -> None:
    assert nn.Dense(1, activation="leaky_relu").activation == nn.LeakyReLU(0.01)
    assert nn.Dense(1, activation="elu").activation == nn.ELU(1.0)


def test_defaults_are_filled_in_from_a_partial_configuration() -> None:
    assert nn.layer_from_config({"type": "dense", "units": 3}) == nn.Dense(3)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: nn.Dense(0), "Dense: units must be a positive whole number, got 0"),
        (lambda: nn.Dense(2.5), "got 2.5"),
        (lambda: nn.Dense(True), "units must be a positive whole number, got True"),
        (lambda: nn.Dense(3, activation="rellu"), 'unknown activation "rellu"; did you mean "relu"\\?'),
        (lambda: nn.Dense(3, activation="xyzzy"), 'unknown activation "xyzzy"\\. Known: elu, gelu'),
        (lambda: nn.Dense(3, bias="yes"), "bias must be True or False"),
        (lambda: nn.Dense(3, weight_initializer="xavier"), 'did you mean "xavier_'),
        (lambda: nn.Dense(3, activation={"relu": {"slope": 1}}), '"relu" has no settings'),
        (lambda: nn.Dense(3, activation={"leaky_relu": {"slop": 1}}), 'did you mean "slope"'),
        (lambda: nn.Conv2D(3, 3, groups=2), "filters must be a multiple of groups"),
        (lambda: nn.Conv2D(4, (3, 3, 3)), "kernel_size must be one whole number or a pair"),
        (lambda: nn.Conv2D(4, 3, padding=-1), "padding must be a whole number that is not negative"),
        (lambda: nn.Conv2D(4, 3, padding="full"), 'padding must be "same", "valid"'),
        (lambda: nn.Conv1D(4, (3, 3)), "Conv1D: kernel_size must be one whole number, got"),
        (lambda: nn.Conv3D(4, (3, 3)), "kernel_size must be one whole number or three"),
        (lambda: nn.ConvTranspose2D(4, 3, output_padding=1), "output_padding must be smaller than stride"),
        (
            lambda: nn.ConvTranspose1D(4, 3, stride=2, padding="same", output_padding=1),
            'padding "same" leaves nothing for output_padding',
        ),
        (lambda: nn.MaxPool2D(2, padding=2), "at most half of pool_size"),
        (lambda: nn.AvgPool2D(0), "pool_size must be a positive whole number"),
        (lambda: nn.Reshape((-1, -1)), "only one extent"),
        (lambda: nn.Reshape(()), "one or more whole numbers"),
        (lambda: nn.Dropout(1.0), "rate must be a finite number at least 0 and below 1, got 1.0"),
        (lambda: nn.Dropout(float("nan")), "got nan"),
        (lambda: nn.MultiHeadAttention(4, key_value_heads=3), "heads \\(4\\) must be a multiple of"),
        (lambda: nn.MultiHeadAttention(4, window=0), "window must be a positive whole number"),
        (lambda: nn.MultiHeadAttention(4, mask=[[1], [1, 0]]), "rows of equal length"),
        (lambda: nn.MultiHeadAttention(4, mask=[[2]]), "1 for what may be seen"),
        (lambda: nn.MultiHeadAttention(4, rotary={"bass": 2}), 'did you mean "base"'),
        (lambda: nn.MultiHeadAttention(4, rotary=nn.Rotary(), cross=True), "leave out rotary or cross"),
        (lambda: nn.Rotary(layout="halves"), "unknown Rotary layout"),
        (lambda: nn.Embedding(0, 4), "vocabulary must be a positive whole number"),
        (lambda: nn.TiedHead(4, tied_to=(0, 0)), "tied_to must be depth, row, column"),
        (lambda: nn.SwiGLU(0), "SwiGLU: hidden must be a positive whole number"),
        (lambda: nn.SinusoidalPositions(base=0), "base must be a finite number above 0"),
        (lambda: nn.Softmax(0), "temperature must be a finite number above 0"),
        (lambda: nn.GridSoftmax(0, 3), "rows must be a positive whole number, got 0"),
        (lambda: nn.HierarchicalSoftmax(3, 10), "leaves must be a multiple of groups"),
        (lambda: nn.HierarchicalSoftmax(3, [1, 2]), "one number for each of the 3 groups"),
        (lambda: nn.AdaptiveSoftmax([10, 10]), "cutoffs must rise"),
        (lambda: nn.AdaptiveSoftmax([]), "cutoffs must rise"),
        (lambda: nn.MixtureSoftmax(0), "components must be a positive whole number"),
        (lambda: nn.MaskedSoftmax([]), "one or more truth values"),
        (lambda: nn.MaskedSoftmax([1, 0]), "mask must be True or False, got 1"),
        (lambda: nn.MaskedSoftmax(axis=1), "axis must be -1 or 0, got 1"),
        (lambda: nn.Entmax(1), "alpha must be a finite number above 1"),
        (lambda: nn.LayerNorm(axes=0), "axes must be a positive whole number"),
        (lambda: nn.RMSNorm(epsilon=0), "epsilon must be a finite number above 0"),
        (lambda: nn.BatchNorm(momentum=2), "momentum must be a finite number at least 0 and at most 1"),
        (lambda: nn.KMeans(3, temperature=0), "temperature must be a finite number above 0"),
        (lambda: nn.LSTM(0), "LSTM: units must be a positive whole number, got 0"),
        (lambda: nn.GRU(3, layers=0), "GRU: layers must be a positive whole number"),
        (lambda: nn.RNN(3, activation="gelu"), 'unknown RNN activation "gelu"'),
        (lambda: nn.LSTM(3, initial_state="zero"), 'initial_state "zero"; did you mean "zeros"'),
        (lambda: nn.GRU(3, stateful=True, bidirectional=True), "cannot be stateful"),
        (lambda: nn.GRU(3, stateful=True, initial_state="learned"), "starts at zeros"),
        (lambda: nn.ELU("x"), "alpha must be a finite number, got 'x'"),
        (lambda: initializers.Uniform(1, 0), "low must not be above high"),
        (lambda: nn.Dense(3, bias_initializer="normal"), "Normal: missing setting std"),
        (lambda: nn.layer_from_config({"units": 3}), 'the key "type" is missing'),
        (lambda: nn.layer_from_config({"type": "conv2"}), 'did you mean "conv2d"'),
        (lambda: nn.layer_from_config({"type": "dense"}), "missing setting units"),
        (lambda: nn.layer_from_config({"type": "dense", "unit": 3}), 'unknown Dense setting "unit"; did you'),
        (lambda: nn.layer_from_config({"type": "flatten", "axis": 3}), "Flatten has no settings"),
        (lambda: nn.Dense.from_config({"type": "flatten"}), 'expected "type": "dense", got "flatten"'),
        (lambda: nn.layer_from_config(["dense"]), "expected a mapping"),
    ],
)
def test_what_is_wrong_is_refused_with_a_reason(build, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build()


def test_numpy_numbers_are_numbers() -> None:
    layer = nn.Conv2D(np.int64(4), kernel_size=(np.int32(3), 3), bias=np.bool_(True))
    assert json.dumps(layer.to_config()) == json.dumps(nn.Conv2D(4, 3).to_config())
    assert nn.MaskedSoftmax(np.arange(3) > 0) == nn.MaskedSoftmax((False, True, True))


def test_layers_are_values() -> None:
    assert nn.Dense(3) == nn.Dense(units=3)
    assert len({nn.Dense(3), nn.Dense(3), nn.Dense(4)}) == 2
    with pytest.raises(AttributeError):
        nn.Dense(3).units = 4  # type: ignore[misc]


def test_named_padding() -> None:
    assert nn.Conv2D(4, 3, padding="valid") == nn.Conv2D(4, 3)
    assert nn.Conv2D(4, 2, padding="same").padding == "same"


def test_padding_as_an_array_says_what_it_may_be() -> None:
    with pytest.raises(ConfigError, match=r"Conv2D: padding must be .*array"):
        nn.Conv2D(4, 3, padding=np.array([1, 2]))  # type: ignore[arg-type]
