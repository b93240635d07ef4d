"""Weights: how they move while they are learned.

How the weights of a layer are distributed after each epoch, the newest darkest, and its gradients likewise.
The norm of an epoch's changes beside that of the weights says how fast a layer learns.

weights-first.svg: How a layer's weights are distributed, a line for each epoch
weights-gradients.svg: Its gradients likewise
"""

import loom
from loom import nn

train, test = loom.datasets.digits()
layers = [nn.Flatten(), nn.Dense(48, activation="tanh"), nn.Dense(48, activation="tanh"), nn.Dense(10)]
net = loom.Sequential(layers, input_shape=(1, 8, 8))
kept = loom.WeightHistograms(sample=(train.x[:64], train.y[:64]))
net.fit(*train, epochs=8, learning_rate=3e-3, callbacks=[kept], device="cpu", verbose=False)
for layer in net.layers[1:]:
    name = f"{layer.path}.weight"
    share = kept.changes[name][-1].norm / kept.weights[name][-1].norm
    print(f"{name}: changed by {share:.1%} in the last epoch")
kept.plot("0.0.0.1.weight", path="weights-first.svg")
kept.plot("0.0.0.1.weight", of="gradients", path="weights-gradients.svg")
