"""Bits: how few each layer needs.

What each layer costs in each numeric type, and the best choice of types within an eighth of the bytes:
weights are stored in so many bits and computed from, not rounded for show.

packed-costs.svg: What each layer costs in each numeric type
packed-plan.svg: The loss over the bytes of all weights, with the choice
"""

import loom
from loom import nn

train, test = loom.datasets.digits()
layers = [
    nn.Conv2D(8, kernel_size=3, activation="relu"),
    nn.Flatten(),
    nn.Dense(32, activation="relu"),
    nn.Dense(10),
]
net = loom.Sequential(layers, input_shape=(1, 8, 8))
net.fit(*train, epochs=10, learning_rate=3e-3, device="cpu", verbose=False)

sample = (train.x[:400], train.y[:400])
types = ["bfloat16", "int8", "int4", "int2", "ternary", "binary"]
costs = loom.analysis.sensitivity(net, sample, dtypes=types)
loom.plot.sensitivity(costs, path="packed-costs.svg")
before, whole = net.weight_bytes, net.evaluate(test, metrics=["accuracy"])["accuracy"]
plan = net.fit_bits(sample, max_bytes=before // 8, dtypes=types, sensitivity=costs)
loom.plot.bits(plan, path="packed-plan.svg")
packed = net.evaluate(test, metrics=["accuracy"])["accuracy"]
print(f"{before:,} bytes: {whole:.1%} right; {net.weight_bytes:,} bytes: {packed:.1%} right")
