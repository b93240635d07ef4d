"""Writes small Keras models with random weights, what they read, and what they make of it.

Written with keras 3.15.1 on jax 0.10.2 ("arithmetic" on torch 2.15.0), h5py 3.16.0 and numpy 2.4.6:
KERAS_BACKEND=jax python tests/golden/keras_models.py
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import keras
import numpy as np
from keras import layers as L

FOLDER = Path(__file__).parent / "keras"
RANDOM = np.random.default_rng(7)


def sequential(shape, *row, dtype="float32"):
    return keras.Sequential([keras.Input(shape, dtype=dtype), *row])


def functional(shape, make, dtype="float32"):
    start = keras.Input(shape, dtype=dtype)
    return keras.Model(start, make(start))


def residual(x):
    y = L.Conv2D(4, 3, padding="same", use_bias=False)(x)
    y = L.BatchNormalization()(y)
    y = L.ReLU()(y)
    x = L.Add()([x, y])
    z = L.Concatenate()([L.Conv2D(2, 1, activation="relu")(x), L.MaxPooling2D(3, 1, padding="same")(x), x])
    z = L.Conv2D(6, 3, strides=2, padding="same")(z)
    return L.Dense(3, activation="softmax")(L.GlobalAveragePooling2D()(z))


def transformer(x):
    x = L.Embedding(11, 8)(x)
    y = L.LayerNormalization()(x)
    x = x + L.MultiHeadAttention(2, 4)(y, y, use_causal_mask=True)
    y = L.LayerNormalization(epsilon=1e-6)(x)
    y = L.Dense(8)(L.Dense(12, activation="gelu")(y))
    return L.Dense(11)(L.Add()([x, y]))


def nested(x):
    inner = keras.Sequential([keras.Input((6,)), L.Dense(6, "tanh"), L.Dropout(0.2), L.Dense(6)])
    return L.Dense(2)(L.add([inner(x), x]))


def unet(x):
    a = L.Conv2D(3, 3, padding="same", activation="relu")(x)
    b = L.Conv2D(4, 3, padding="same", activation="silu")(L.MaxPooling2D(2)(a))
    up = L.Conv2DTranspose(3, 3, strides=2, padding="same")(b)
    return L.Conv2D(1, 1, activation="sigmoid")(L.concatenate([a, up]))


def arithmetic(x):
    """Operators on a model's values, which are functions of keras.ops and no layers."""
    y = L.Dense(4)(x)
    y = 2 * y + x
    z = L.Conv1D(4, 3, padding="same", activation="hard_sigmoid")(1 - y / 3)
    y = L.Subtract()([z, -y])
    y = y / (L.Activation("sigmoid")(y) + 0.5) - y
    return L.ReLU(max_value=2.0, negative_slope=0.1, threshold=0.25)(y)


def excited(x):
    x = L.Conv2D(4, 3, padding="same", use_bias=False)(x)
    gate = L.GlobalAveragePooling2D()(x)
    gate = L.Dense(4, "sigmoid")(L.Dense(2, "relu")(gate))
    x = L.Multiply()([x, L.Reshape((1, 1, 4))(gate)])
    gate = L.GlobalAveragePooling2D(keepdims=True)(x)
    x = L.Multiply()([L.Conv2D(4, 1, activation="hard_sigmoid")(gate), x])
    x = L.Multiply()([x, L.Conv2D(1, 1, activation="tanh")(x)])
    return L.Dense(2)(L.Flatten()(x))


MODELS = {
    "perceptron": lambda: sequential(
        (5,), L.Dense(8, "relu"), L.BatchNormalization(), L.Dropout(0.1), L.Dense(3, "softmax")
    ),
    "image": lambda: sequential(
        (8, 8, 2),
        L.Rescaling(0.5, offset=-0.25),
        L.Conv2D(4, 3, activation="relu"),
        L.AveragePooling2D(2),
        L.DepthwiseConv2D(3, padding="same", depth_multiplier=2),
        L.LeakyReLU(negative_slope=0.2),
        L.SeparableConv2D(5, 3, padding="same"),
        L.ZeroPadding2D(((1, 0), (2, 1))),
        L.GroupNormalization(5),
        L.Flatten(),
        L.Dense(3),
    ),
    "signal": lambda: sequential(
        (12, 3),
        L.Conv1D(4, 3, dilation_rate=2, padding="causal", activation="tanh"),
        L.Conv1D(6, 5, strides=2, padding="same"),
        L.BatchNormalization(scale=False),
        L.MaxPooling1D(2),
        L.Conv1DTranspose(2, 4, strides=2),
        L.GlobalMaxPooling1D(),
    ),
    "volume": lambda: sequential(
        (4, 4, 4, 1),
        L.Conv3D(2, 2),
        L.ELU(0.5),
        L.Permute((3, 1, 2, 4)),
        L.Reshape((9, 6)),
        L.PReLU(shared_axes=[1, 2]),
    ),
    "lstm": lambda: sequential(
        (6,),
        L.Embedding(11, 5),
        L.Bidirectional(L.LSTM(4, return_sequences=True)),
        L.LSTM(3),
        L.Dense(2),
        dtype="int32",
    ),
    "gru": lambda: sequential(
        (6, 4), L.GRU(3, return_sequences=True), L.TimeDistributed(L.Dense(3)), L.Bidirectional(L.GRU(2))
    ),
    "rnn": lambda: sequential(
        (6, 4), L.SimpleRNN(3, return_sequences=True, activation="relu"), L.SimpleRNN(2), L.Softmax()
    ),
    "residual": lambda: functional((7, 7, 4), residual),
    "transformer": lambda: functional((6,), transformer, "int32"),
    "nested": lambda: functional((6,), nested),
    "unet": lambda: functional((6, 6, 1), unet),
    "gru_before": lambda: sequential(
        (6, 4),
        L.GRU(3, return_sequences=True, reset_after=False),
        L.Bidirectional(L.GRU(2, reset_after=False, return_sequences=True)),
        L.GRU(2, reset_after=False, use_bias=False),
    ),
    "excited": lambda: functional((6, 5, 3), excited),
    "arithmetic": lambda: functional((6, 4), arithmetic),
}


def towers():
    """Columns and categories in, of which one is looked up twice; two outputs in a dictionary."""
    user, film = (keras.Input((1,), dtype="int32", name=name) for name in ("user", "film"))
    table = keras.Input((3,), name="table")
    near = [L.Flatten()(L.Embedding(6, 4)(each)) for each in (user, film)]
    deep = [L.Flatten()(L.Embedding(6, 3)(each)) for each in (user, film)]
    match = L.Dot(axes=1, normalize=True)(near)
    scaled = L.Normalization(mean=[0.5, 1, 2], variance=[1, 4, 9])(table)
    mixed = L.Dense(5, "tanh")(L.Concatenate()([*deep, scaled]))
    stars = L.Dense(1)(L.Concatenate()([match, mixed]))
    kind = L.Dense(3, "softmax")(L.Maximum()([mixed, L.Dense(5)(table)]))
    return keras.Model([user, film, table], {"stars": stars, "kind": kind})


def twins():
    """One model that reads two images, and what tells these apart."""
    start = keras.Input((6, 5, 2))
    x = L.BatchNormalization()(L.Conv2D(3, 3, activation="relu")(start))
    inner = keras.Model(start, [L.GlobalAveragePooling2D()(x), L.Flatten()(L.MaxPooling2D(2, 3, "same")(x))])
    left, right = keras.Input((6, 5, 2), name="left"), keras.Input((6, 5, 2), name="right")
    (a, b), (c, d) = inner(left), inner(right)
    apart = L.Dense(2, name="apart")(L.Subtract()([a, c]))
    return keras.Model(
        [left, right], [apart, L.Average(name="mean")([b, d]), L.Minimum(name="least")([a, c, a])]
    )


def crossed():
    """Branches that are not nested in each other, values of several ranks, sums over one element."""
    start = keras.Input((4, 3), name="start")
    a, b = L.Dense(3, "tanh")(start), L.Dense(3)(start)
    c, d = L.Add()([a, b]), L.Multiply()([b, start])
    e = L.Dot(axes=2)([L.Maximum()([c, d]), L.Average()([a, d, L.GlobalMaxPooling1D()(b)])])
    f = L.Concatenate(axis=1)([e, L.Permute((2, 1))(L.Dot(axes=(2, 1))([e, e])), L.Permute((2, 1))(e)])
    return keras.Model(start, L.Dense(2)(L.Bidirectional(L.GRU(2), merge_mode="ave")(f)))


def masked():
    """Padding that recurrent layers and a mean leave out."""
    words = keras.Input((5,), dtype="int32", name="words")
    x = L.Embedding(7, 4, mask_zero=True)(words)
    y = L.LSTM(3, return_sequences=True)(L.Dense(3)(x))
    y = L.Bidirectional(L.SimpleRNN(2), merge_mode="sum")(y)
    return keras.Model(words, L.Concatenate()([y, L.GlobalAveragePooling1D()(x), L.Flatten()(x)]))


def leading():
    """Channels first, as Keras has them on request."""
    start = keras.Input((3, 6, 5), name="start")
    x = L.Conv2D(4, 3, padding="same", data_format="channels_first", activation="relu")(start)
    x = L.BatchNormalization(axis=1)(x)
    x = L.AveragePooling2D(2, 1, "same", data_format="channels_first")(x)
    return keras.Model(start, L.Dense(2)(L.GlobalAveragePooling2D(data_format="channels_first")(x)))


def taught():
    """Layers that are not trained, and penalties on those that are."""
    start = keras.Input((4,), name="start")
    x = L.Dense(5, "tanh", kernel_regularizer=keras.regularizers.L1L2(0.02, 0.05))(start)
    x = L.Dense(5, "tanh", trainable=False, kernel_constraint=keras.constraints.MaxNorm(2))(x)
    y = L.Dense(5, trainable=False)(x)
    return keras.Model(start, L.Dense(2, bias_regularizer="l2")(L.Add()([x, y])))


def attending():
    """Steps that attend to those of another sequence, of another width."""
    asked, seen = keras.Input((4, 6), name="asked"), keras.Input((5, 3), name="seen")
    x = L.Conv1D(6, 3, padding="same")(asked)
    y = L.Dense(3, "tanh")(seen)
    x = L.LayerNormalization()(L.Add()([x, L.MultiHeadAttention(2, 3)(key=y, query=x, value=y)]))
    x = L.Add()([x, L.MultiHeadAttention(1, 3, use_bias=False)(x, x, use_causal_mask=True)])
    return keras.Model([asked, seen], L.Dense(2)(L.MultiHeadAttention(1, 2)(x, y)))


PORTS = {each.__name__: each for each in (towers, twins, crossed, masked, leading, taught, attending)}


def write_ports():
    """Writes models of several inputs and outputs, with arrays by name; one is trained for a step."""
    folder, random, values = FOLDER.parent / "keras_ports", np.random.default_rng(8), {}
    folder.mkdir(exist_ok=True)
    for name, make in PORTS.items():
        keras.utils.clear_session()
        model = make()
        for weight in model.weights:
            if weight.dtype == "float32":
                drawn = random.uniform(-0.6, 0.6, weight.shape)
                weight.assign(np.abs(drawn) + 0.5 if "variance" in weight.path else drawn)
        given = {}
        for tensor in model.inputs:
            shape = (3, *tensor.shape[1:])
            words = "int" in str(tensor.dtype)
            given[tensor.name] = (
                random.integers(0, 6, shape) if words else random.normal(size=shape).astype("f4")
            )
        if name == "masked":
            given["words"][0, 3:] = given["words"][1, :2] = 0
        made = model(given if len(given) > 1 else next(iter(given.values())), training=False)
        ends = made if isinstance(made, dict) else made if isinstance(made, list) else [made]
        named = ends if isinstance(ends, dict) else dict(zip(model.output_names, ends, strict=True))
        values |= {f"{name}.x.{key}": array for key, array in given.items()}
        values |= {f"{name}.y.{key}": np.asarray(array) for key, array in named.items()}
        model.save(folder / f"{name}.keras")
        compress(folder / f"{name}.keras")
        if name in ("twins", "masked"):
            model.save(folder / f"{name}.h5")
        if name == "taught":
            (x,) = given.values()
            model.compile(keras.optimizers.SGD(0.1), "mse")
            model.train_on_batch(x, np.ones((3, 2)))
            values["taught.after"] = np.asarray(model(x))
    np.savez_compressed(folder / "values.npz", **values)


def compress(path):
    """Writes an archive anew, smaller."""
    with zipfile.ZipFile(path) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in held.items():
            archive.writestr(name, data)


def main():
    FOLDER.mkdir(exist_ok=True)
    values = {}
    for name, make in MODELS.items():
        keras.utils.clear_session()
        model = make()
        for weight in model.weights:
            drawn = RANDOM.uniform(-0.6, 0.6, weight.shape)
            weight.assign(np.abs(drawn) + 0.5 if "variance" in weight.path else drawn)
        shape = (3, *model.input_shape[1:])
        words = name in ("lstm", "transformer")
        x = RANDOM.integers(0, 11, shape) if words else RANDOM.normal(size=shape).astype(np.float32)
        values[f"{name}.x"], values[f"{name}.y"] = x, np.asarray(model.predict(x, verbose=0))
        model.save(FOLDER / f"{name}.keras")
        if name in ("arithmetic", "image", "lstm", "residual"):
            model.save(FOLDER / f"{name}.h5")
        compress(FOLDER / f"{name}.keras")
    np.savez_compressed(FOLDER / "values.npz", **values)


if __name__ == "__main__":
    main()
    write_ports()
