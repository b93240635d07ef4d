"""Sequences: a digit, row by row, and where attention looks.

A digit's eight rows are read one after the other, by an LSTM and by attention. What each row asked of the
others is drawn, head by head.

rows-attention.svg: Which rows of a digit each row looks at, head by head
"""

import loom
from loom import nn

(x, y), (x_test, y_test) = loom.datasets.digits()
x, x_test = x[:, 0], x_test[:, 0]  # (images, 8 steps, 8 features)


def learned(*layers: nn.Layer) -> loom.Network:
    """Trains a network of these layers, and tells how many of the other digits it reads."""
    net = loom.Sequential(layers, input_shape=(8, 8))
    net.fit(x, y, epochs=8, learning_rate=5e-3, device="cpu", verbose=False)
    found = net.evaluate((x_test, y_test), metrics=["accuracy"])
    print(f"{layers[0].kind} first: {found['accuracy']:.0%} of {len(x_test)} digits read right")
    return net


learned(nn.LSTM(32), nn.Dense(10))
looking = learned(
    nn.SinusoidalPositions(),
    nn.Dense(32),
    nn.Residual([nn.MultiHeadAttention(4)]),
    nn.Flatten(),
    nn.Dense(10),
)
seen = looking.activations(x_test[:1], attention=True).attention["0.0.0.2.layers.0"]
loom.plot.attention(seen[0], queries=[f"row {row}" for row in range(8)], path="rows-attention.svg")
