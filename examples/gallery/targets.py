"""Targets: what each layer missed, step by step.

A network of ten layers learns by targets instead of backpropagation. Rows are layers, columns steps: how
far each layer was from its target, and how much of the signal it handed on.

targets-layers.svg: Gaps and link budgets of ten layers over 180 steps
"""

import loom
from loom import nn

train, test = loom.datasets.digits()
layers = [nn.Flatten(), *(nn.Dense(32, activation="tanh") for _ in range(9)), nn.Dense(10)]
net = loom.Sequential(layers, input_shape=(1, 8, 8))
learner = loom.TweenTrainer(net, loom.TweenConfig.tween(base_rate=0.1, history=1))
settings = loom.TrainingConfig(epochs=4, loss="cross_entropy", device="cpu", verbose=False)
learner.fit(train, settings)
print(f"{net.evaluate(test, metrics=['accuracy'])['accuracy']:.1%} of {len(test.x)} digits read right")
loom.plot.tween(net, "targets-layers.svg")
