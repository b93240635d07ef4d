"""Masks: which pixels are of the disc.

A U-Net on a grid of five cells: down to few pixels and up again, with links across the grid. It is drawn,
and so is what it makes of six noisy images that it has not seen.

masks-told.svg: Six noisy images, the discs told of them, and the right ones
masks-network.svg: The grid: five cells with their layers, and two links
"""

import numpy as np

import loom
from loom import nn

random = np.random.default_rng(0)
places, radii = random.uniform(4, 12, (240, 2, 1, 1)), random.uniform(2, 4, (240, 1, 1))
rows, columns = np.mgrid[:16, :16]
discs = (rows - places[:, 0]) ** 2 + (columns - places[:, 1]) ** 2 < radii**2
images = (discs + random.normal(0, 0.5, discs.shape))[:, None].astype(np.float32)


def block(filters: int) -> nn.Conv2D:
    """Returns a convolution that keeps height and width."""
    return nn.Conv2D(filters, kernel_size=3, padding="same", activation="relu")


net = loom.Network((1, 16, 16), grid=(1, 5))
net[0, 0].add(block(8))
net[0, 1].add(nn.MaxPool2D(2), block(16))
net[0, 2].add(nn.MaxPool2D(2), block(32), nn.UpSampling2D(2))
net.link((0, 1), (0, 3), combine="concat")[0, 3].add(block(16), nn.UpSampling2D(2))
net.link((0, 0), (0, 4), combine="concat")[0, 4].add(block(8), nn.Conv2D(2, kernel_size=1))
loom.plot.network(net, "masks-network.svg")

net.fit(
    images[:200],
    discs[:200].astype(int),
    epochs=8,
    learning_rate=5e-3,
    loss="cross_entropy",
    device="cpu",
    verbose=False,
)
held = images[200:], discs[200:].astype(int)
print(f"intersection over union {net.evaluate(held, loss='cross_entropy', metrics=['iou'])['iou']:.2f}")
seen, right = held[0][:6, 0], held[1][:6]
told = net.predict(held[0][:6]).argmax(axis=1)
shown = np.concatenate([seen, told, right])
loom.plot.predictions(shown, np.repeat(["seen", "told", "right"], 6), columns=6, path="masks-told.svg")
