"""Learning rates: found, and planned.

The range test raises the rate step by step until the loss explodes; a good rate lies where the loss falls
fast. Around it a schedule: up, and slowly down.

rate-search.svg: The loss over the learning rate, with both suggestions
rate-schedule.svg: The planned rate over 450 steps: up, and slowly down
"""

import loom
from loom import nn

train, test = loom.datasets.digits()
net = loom.Sequential([nn.Flatten(), nn.Dense(64, activation="relu"), nn.Dense(10)], input_shape=(1, 8, 8))
found = loom.find_rate(net, train, loom.TrainingConfig(loss="cross_entropy", device="cpu"))
print(found)
found.plot("rate-search.svg")

schedule = loom.schedules.Warmup(45, then=loom.schedules.Cosine())
schedule.plot(10 * 45, base=found.suggestion, path="rate-schedule.svg")
net.fit(*train, epochs=10, learning_rate=found.suggestion, schedule=schedule, device="cpu", verbose=False)
print(f"{net.evaluate(test, metrics=['accuracy'])['accuracy']:.1%} right after 10 epochs")
