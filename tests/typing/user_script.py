"""What a user writes, for type checkers: lines that are right pass, and those that are not are found.

`make lint` has mypy and basedpyright read this file; each complains of an ignore that ignores nothing.
"""

from __future__ import annotations

import numpy as np

import loom
from loom import nn

x = np.zeros((32, 1, 8, 8))
y = np.zeros(32, dtype=int)

net = loom.Network(input_shape=(1, 8, 8), grid=(1, 1, 2), precision="float32")
net[0, 0, 0].add(
    nn.Conv2D(8, kernel_size=3, padding="same", activation="relu"),
    nn.BatchNorm(),
    nn.MaxPool2D(2),
    nn.Residual([nn.Conv2D(8, kernel_size=3, padding=1)]),
)
net[0, 0, 1].add(nn.Flatten(), nn.Dense(16, activation=nn.LeakyReLU(0.2)), nn.Dropout(0.1), nn.Dense(10))
words = loom.Sequential(
    [nn.Embedding(100, 16), nn.LSTM(8), nn.MultiHeadAttention(4), nn.LayerNorm(), nn.Dense(8)],
    input_shape=12,
)

units: int = nn.Dense(8).units
rate: float = nn.Dropout(0.5).rate
decay: float = loom.AdamW(weight_decay=0.1).weight_decay
factor: float = loom.schedules.Cosine(end_factor=0.1).end_factor
delta: float = loom.losses.Huber(0.5).delta
patience: int = loom.EarlyStopping(patience=3).patience

config = loom.TrainingConfig(
    epochs=3,
    batch_size=16,
    optimizer=loom.SGD(momentum=0.9, nesterov=True),
    schedule=loom.schedules.Warmup(10, then=loom.schedules.OneCycle()),
    loss="cross_entropy",
    metrics=["accuracy", loom.metrics.TopKAccuracy(3), "sklearn.f1_score"],
    early_stopping=loom.EarlyStopping(patience=2),
)
result = loom.train(
    net, (x, y), config, validation=(x, y), callbacks=[loom.History(), loom.CSVLogger("a.csv")]
)
again: loom.TrainingResult = net.fit(
    x, y, epochs=3, validation_split=0.1, batch_size=8, optimizer="adam", schedule="cosine", loss="auto"
)
third = net.fit((x, y), config, epochs=1, callbacks=[loom.ModelCheckpoint("best.loom")])
loss: float = result.final_loss + again.best_loss + third.total_time
accuracy: float = net.evaluate((x, y), metrics=["accuracy"])["accuracy"]
classes = net.predict(x).argmax(axis=1)
net.morph("int8").save("net.loom")
weights = loom.load("net.loom").layers[0].parameters["weight"].mean()
step: float = loom.Trainer(net, config).step(x, y)
stopping = loom.EarlyStopping("val_accuracy", patience=2, mode="max")
trackers: list[loom.Callback] = [
    loom.WandbLogger("project", tags=["first"]),
    loom.MLflowLogger("experiment", tracking_uri="sqlite:///mlflow.db"),
    loom.AimLogger("runs", batches=10),
]
net.fit(
    x,
    y,
    on_interrupt="raise",
    on_nonfinite="skip",
    depth_scale="inv_sqrt",
    verbose="auto",
    callbacks=trackers,
)
net.fit(x, y, class_weight={0: 2.0}, ignore_findings=["unscaled-inputs"], shards=2, exchange="int8")
net.fit(x, ["cat", "dog"] * 16, class_weight={"cat": 2.0})
folder = loom.RunFolder("runs/a", on_change="restart", mode="min")
tween = loom.TweenConfig(mode="layerwise", gap_metric="mse", depth_scale=0.9)
rotary = nn.MultiHeadAttention(4, rotary=nn.Rotary(layout="half_split"))
both = nn.Parallel([nn.Dense(3), nn.Dense(3)], combine="add")
schema = loom.json_schema("training")

# Data, pictures and looks.
table = loom.data.columns({"size": [1.0, 2.0], "city": ["Oslo", "Rome"], "dear": [0, 1]}, target="dear")
columns: tuple[str, ...] = table.encoder.columns
net.fit(table, epochs=1)
train, held = loom.data.split((x, y), 0.2, stratify=True)
windows, targets = loom.data.windows(np.arange(30.0), length=4, horizon=1)
photos = loom.data.image_folder("photos", size=16, augment=loom.data.Augment(flip=0.5), workers=2)
found = loom.find_rate(net, (x, y), loom.TrainingConfig(loss="cross_entropy"))
suggested: float = found.suggestion
found.plot("rate.svg")
result.plot("course.svg")
loom.History().plot()
report = loom.analysis.classification(net, (x, y))
loom.plot.confusion_matrix(report, path="confusion.svg")
loom.plot.filters(net, most=8)
loom.plot.predictions(x, net.predict_classes(x), path="told.svg")
owed = loom.analysis.saliency(net, x, method="integrated_gradients")
plane = loom.analysis.embed(x.reshape(32, -1), "pca")
shares = net.predict_probabilities(x).sum(axis=1)
net.link((0, 0, 0), (0, 0, 1), combine="concat")
cut = net.cut(until=net.layers[0]).freeze()
cut[0, 0, 0].add(nn.Dense(2))
cut[0, 0, 0][-1] = nn.Dense(3)
net.layers[0].trainable = False
net.card = loom.ModelCard(labels=["a", "b"])
findings = loom.doctor(net, (x, y), config)
app = loom.serving.create_app(net, loom.serving.ServingSettings(rate=10))
loom.save_onnx(net, "net.onnx")


class Watch(loom.Callback):
    """A callback of one's own."""

    def on_epoch_end(self, epoch: int, logs: loom.callbacks.Logs | None = None) -> None:
        """Ends the training early."""
        if logs is not None and logs["loss"] < 0.1:
            raise loom.StopTraining


# What is wrong is found before it runs.
nn.Dense(8, activation="rellu")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
nn.Dense("8")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
nn.Dense(8, unit=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
loom.TrainingConfig(loss="cross_entropie")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
loom.TrainingConfig(optimizer="adamm")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
loom.TrainingConfig(epoch=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
loom.TrainingConfig(metrics=["acuracy"])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
loom.AdamW(learning_rate=1e-3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
net.morph("int7")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
loom.Network(3, precision="float16")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
loom.TrainingConfig(on_nonfinite="ignore")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
loom.TrainingConfig(on_interrupt="return")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
loom.TrainingConfig(verbose="yes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
loom.EarlyStopping(mode="maximum")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
loom.ModelCheckpoint("a.loom", mode="maximum")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
loom.TweenConfig(mode="layer")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
nn.Conv2D(8, kernel_size=3, padding="full")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
nn.Rotary(layout="half")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
nn.Parallel([nn.Dense(3)], combine="sum")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
net.link((0, 0, 0), (0, 0, 1), combine="sum")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
net.morph("int8", rounding="up")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
loom.analysis.saliency(net, x, method="grad")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
loom.analysis.embed(x, "umap")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
nn.UpSampling2D(2, mode="cubic")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
loom.time_frames("all")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
loom.json_schema("net")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
