"""Writes keras_*.onnx and .npz: small Keras models as tf2onnx exports them, with what they compute.

    python tests/golden/onnx/keras_models.py

needs tensorflow-cpu 2.21.0, its Keras, and tf2onnx 1.17.0.
"""

import os
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_USE_LEGACY_KERAS"] = "0"

import numpy as np

for old, new in (("object", object), ("bool", bool), ("cast", lambda x, t: np.asarray(x).astype(t))):
    if not hasattr(np, old):
        setattr(np, old, new)  # tf2onnx still uses what NumPy 2 has taken away

import keras
import tensorflow as tf
import tf2onnx
from keras import layers as l

HERE = Path(__file__).parent


def residual():
    x = entry = keras.Input((8, 8, 2))
    x = l.Conv2D(4, 3, padding="same", use_bias=False)(x)
    x = l.BatchNormalization()(x)
    x = y = l.ReLU()(x)
    x = l.SeparableConv2D(4, 3, padding="same", activation="relu")(x)
    x = l.Add()([x, y])
    x = l.MaxPooling2D()(x)
    x = l.Conv2D(3, 3, strides=2, padding="same", activation="swish")(x)
    x = l.GlobalAveragePooling2D()(x)
    return keras.Model(entry, l.Dense(3, activation="softmax")(x))


def transformer():
    x = entry = keras.Input((5, 8))
    y = l.LayerNormalization(epsilon=1e-6)(x)
    x = l.Add()([x, l.MultiHeadAttention(2, 4)(y, y)])
    y = l.LayerNormalization()(x)
    y = l.Dense(8)(l.Dense(16, activation=lambda x: keras.activations.gelu(x, approximate=True))(y))
    x = l.Add()([x, y])
    return keras.Model(entry, l.Dense(2)(l.GlobalAveragePooling1D()(x)))


MODELS = {
    "mlp": lambda: keras.Sequential(
        [keras.Input((4,)), l.Dense(6, activation="relu"), l.Dropout(0.5), l.Dense(3, activation="softmax")]
    ),
    "cnn": lambda: keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            l.Conv2D(3, 3, activation="relu"),
            l.MaxPooling2D(),
            l.Conv2D(4, 2, activation="elu"),
            l.Flatten(),
            l.Dense(2),
        ]
    ),
    "residual": residual,
    "lstm": lambda: keras.Sequential(
        [keras.Input((5, 3)), l.LSTM(4, return_sequences=True), l.LSTM(3), l.Dense(2)]
    ),
    "both": lambda: keras.Sequential(
        [keras.Input((5, 3)), l.Bidirectional(l.LSTM(4, return_sequences=True)), l.Flatten(), l.Dense(2)]
    ),
    "text": lambda: keras.Sequential(
        [
            keras.Input((6,), dtype="int32"),
            l.Embedding(10, 4),
            l.Conv1D(5, 3, activation="relu"),
            l.GlobalMaxPooling1D(),
            l.Dense(2),
        ]
    ),
    "transformer": transformer,
}
for name, make in MODELS.items():
    keras.utils.set_random_seed(len(name))
    model = make()
    rng = np.random.default_rng(0)
    for weight in model.weights:
        if weight.dtype == "float32" and len(weight.shape) == 1:
            weight.assign(weight + 0.2 * rng.random(weight.shape))
    shape = model.input_shape[1:]
    x = (
        rng.integers(0, 10, (2, *shape)).astype(np.int32)
        if name == "text"
        else rng.normal(size=(2, *shape)).astype(np.float32)
    )
    signature = [tf.TensorSpec((None, *shape), tf.as_dtype(x.dtype), name="x")]
    function = tf.function(lambda x, model=model: model(x, training=False), input_signature=signature)
    try:
        exported, _ = tf2onnx.convert.from_function(function, input_signature=signature, opset=17)
    except Exception as error:
        print(name, "is not exported:", type(error), str(error)[:300])
        continue
    for node in exported.graph.node:
        node.doc_string = ""
    (HERE / f"keras_{name}.onnx").write_bytes(exported.SerializeToString())
    np.savez(HERE / f"keras_{name}.npz", x=x, y=np.asarray(model(x, training=False)))
