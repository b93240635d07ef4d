"""Transfer: from ten digits to odd and even, by ten images.

A network that names digits is cut before its last layer, frozen, and gets a new one, which learns from one
image of each digit whether it is odd. A network that starts from nothing learns from the same images.

transfer-nothing.svg: Odd and even digits in the plane, mixed: the network that began from nothing
transfer-learned.svg: Odd and even digits in the plane: the one that went on
"""

import numpy as np

import loom
from loom import nn

(x, y), (x_test, y_test) = loom.datasets.digits()
chosen = np.concatenate([np.flatnonzero(y == digit)[:1] for digit in range(10)])
few, odd = x[chosen], y[chosen] % 2


def network() -> loom.Network:
    """Builds a network that names digits."""
    layers = [nn.Conv2D(16, kernel_size=3, activation="relu"), nn.Flatten(), nn.Dense(32, activation="tanh")]
    return loom.Sequential([*layers, nn.Dense(10)], input_shape=(1, 8, 8))


def right(net: loom.Network) -> float:
    """Returns the share of other images that it tells odd from even."""
    return float(net.evaluate((x_test, y_test % 2), metrics=["accuracy"])["accuracy"])


named = network()
named.fit(x, y, epochs=6, learning_rate=3e-3, device="cpu", verbose=False)

net = named.cut(until=named.layers[-2]).freeze()
net[0, 0, 0].add(nn.Dense(2))
net.fit(few, odd, epochs=80, learning_rate=0.01, device="cpu", verbose=False)

scratch = network()
scratch[0, 0, 0][-1] = nn.Dense(2)
scratch.fit(few, odd, epochs=80, learning_rate=0.01, device="cpu", verbose=False)

print(f"from nothing: {right(scratch):.0%}; from what was learned: {right(net):.0%} of {len(y_test)} images")
for name, one in (("nothing", scratch), ("learned", net)):
    seen = one.activations(x_test[:300], ["0.0.0.2"])["0.0.0.2"]
    plane = loom.analysis.embed(seen, "pca", labels=np.where(y_test[:300] % 2, "odd", "even"))
    loom.plot.embedding(plane, path=f"transfer-{name}.svg")
