"""Tables: numbers, categories and gaps.

A network learns rents from a table as it comes: `loom.data.columns` scales its numbers, spreads its
categories and marks its gaps, and the network keeps how, so that it reads new rows by itself.

table-residuals.svg: By how much each answer was off, over what was told
"""

import numpy as np

import loom
from loom import nn

random = np.random.default_rng(0)
size, city = random.normal(75, 25, 1200), random.choice(["Bergen", "Lyon", "Porto"], 1200)
per_metre = np.select([city == "Bergen", city == "Lyon"], [16.0, 13.0], 9.0)
rent = (200 + per_metre * size + random.normal(0, 40, 1200)) / 1000  # in thousands: of the order of 1
size[::15] = np.nan
flats = {"size": size, "city": city, "rent": rent}

kept, held = loom.data.split(flats, 0.2, seed=0)
table = loom.data.columns(kept, target="rent")
net = loom.Sequential([nn.Dense(32, activation="relu"), nn.Dense(1)], input_shape=table.width)
net.fit(table, epochs=40, learning_rate=0.01, loss="huber", device="cpu", verbose=False)

encoder = table.encoder
report = loom.analysis.regression(net, (encoder(held), encoder.targets(held)), ["rent"])
print(f"reads {', '.join(encoder.features)}")
print(f"off by {1000 * report.mean_absolute_error[0]:.0f} on the average, R2 {report.r2[0]:.2f}")
loom.plot.residuals(report, path="table-residuals.svg")
