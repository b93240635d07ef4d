"""Reasons: what speaks for an answer, and what lies near what.

Which pixels an answer rests on (red for it, blue against it), by integrated gradients, and how a hidden
layer sees digits: those that it holds for alike lie near each other.

reasons-saliency.svg: Six digits, and below each what speaks for the answer and against it
reasons-plane.svg: Digits in the plane, each kind in its colour
"""

import loom
from loom import nn

train, (x, y) = loom.datasets.digits()
layers = [
    nn.Conv2D(12, kernel_size=3, activation="relu"),
    nn.Flatten(),
    nn.Dense(32, activation="relu"),
    nn.Dense(10),
]
net = loom.Sequential(layers, input_shape=(1, 8, 8))
net.fit(*train, epochs=8, learning_rate=3e-3, device="cpu", verbose=False)

owed = loom.analysis.saliency(net, x[:6], method="integrated_gradients")
loom.plot.saliency(owed, x[:6], path="reasons-saliency.svg")
print("off from the sum that it should be by at most", f"{abs(owed.completeness_gaps()).max():.1g}")

plane = loom.analysis.embed(net.activations(x[:200], ["0.0.0.2"])["0.0.0.2"], "pca", labels=y[:200])
loom.plot.embedding(plane, path="reasons-plane.svg")
