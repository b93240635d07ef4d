"""Series: the next three values of one.

Windows of a noisy wave go into a GRU, which tells the three values that follow. The last fifth of the
series is held out; beside each answer stands by how much it was off.

forecast-course.svg: Loss of training and validation over twelve epochs
forecast-residuals.svg: By how much each answer was off, for one, two and three steps
"""

import numpy as np

import loom
from loom import nn

random = np.random.default_rng(0)
series = np.sin(np.arange(900) / 7) + 0.1 * random.normal(size=900)
x, y = loom.data.windows(series, length=24, horizon=3)
train, test = loom.data.split((x, y), 0.2, shuffle=False)

net = loom.Sequential([nn.GRU(16), nn.Dense(3)], input_shape=(24, 1))
result = net.fit(*train, epochs=12, learning_rate=0.01, validation_data=test, device="cpu", verbose=False)
result.plot("forecast-course.svg")

report = loom.analysis.regression(net, test, ["in 1 step", "in 2 steps", "in 3 steps"])
for name, error in zip(report.names, report.root_mean_squared_error, strict=True):
    print(f"{name}: off by {error:.2f}; the noise alone is 0.10")
loom.plot.residuals(report, path="forecast-residuals.svg")
