"""Images: handwritten digits.

A small convolutional network learns to read 1,437 images of 8 by 8 pixels. Its course, what it takes for
what, the filters of its first layer, and the mistakes that it is surest of.

handwriting-course.svg: Loss and accuracy of training and validation over eight epochs
handwriting-filters.svg: The sixteen filters of the first layer, red and blue
handwriting-confusion.svg: Which digit was taken for which, how often
handwriting-errors.svg: The five surest mistakes
"""

import loom
from loom import nn

train, test = loom.datasets.digits()
net = loom.Sequential(
    [
        nn.Conv2D(16, kernel_size=3, padding=1, activation="relu"),
        nn.MaxPool2D(2),
        nn.Conv2D(16, kernel_size=3, padding=1, activation="relu"),
        nn.Flatten(),
        nn.Dense(10),
    ],
    input_shape=(1, 8, 8),
)
result = net.fit(
    *train,
    validation_data=test,
    epochs=8,
    learning_rate=3e-3,
    metrics=["accuracy"],
    device="cpu",
    verbose=False,
)
result.plot("handwriting-course.svg")

report = loom.analysis.classification(net, test)
print(f"{report.accuracy:.1%} of {len(test.x)} images are read right")
loom.plot.confusion_matrix(report, path="handwriting-confusion.svg")
loom.plot.filters(net, path="handwriting-filters.svg")
loom.plot.top_errors(report.top_errors(test.x, 5), path="handwriting-errors.svg")
