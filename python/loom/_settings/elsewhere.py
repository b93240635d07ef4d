"""What modules of Keras, PyTorch and scikit-learn have, and where loom has it; for error messages alone."""

from __future__ import annotations

__all__ = ["PLACES"]

_LABELS = "labels go in as they are: whole numbers, texts or booleans, (rows,); net.fit(x, y)"
_GPUS = 'loom.devices() lists what there is; net.to("gpu"), or device="gpu" of training'
_BY_HAND = (
    "net.forward(x), a loss of loom.losses, net.backward(gradient), net.apply_gradients(): a loop by hand"
)
_SPLIT = "loom.data.split((x, y), 0.2, stratify=True)"
_LOADER = "net.fit(x, y, batch_size=32); or PyTorch's own loader, or any iterable of (x, y)"
_DOWNLOADS = "loom downloads nothing: read the arrays with what you have, and give them to net.fit(x, y)"
_PROBABILITIES = "net.predict_probabilities(x), or the layer nn.Softmax()"
_SEED = "seed= of the network and of TrainingConfig"
_COMBINED = 'nn.Parallel([a, b], combine="{}"), or net.link(source, target, combine="{}") between cells'
_BLOCK = (
    "nn.Residual([nn.LayerNorm(), nn.MultiHeadAttention(4)]), nn.Residual([nn.LayerNorm(), nn.SwiGLU(64)])"
)

PLACES = {
    "loom": {
        "serve": "the command `loom serve FILE`, and loom.serving.create_app(net)",
        "random": _SEED,
        "softmax": _PROBABILITIES,
        "sigmoid": _PROBABILITIES,
        "argmax": "net.predict_classes(x)",
        "utils": f"of to_categorical: {_LABELS}; of plot_model: loom.plot.network(net)",
        "ops": 'NumPy, which loom takes and returns; in a network nn.Expr("x * x"), a formula',
        "backend": 'NumPy, which loom takes and returns; in a network nn.Expr("x * x"), a formula',
        "applications": "loom.load(folder), of the Hugging Face Hub, and loom.from_torch(module, example)",
        "preprocessing": "loom.data: image_folder, windows, Padded, columns",
        "regularizers": "regularizers= of training, and optimizer=loom.AdamW(weight_decay=0.01)",
        "from_keras": 'loom.load("model.keras")',
        "from_onnx": 'loom.load("model.onnx")',
        "from_pretrained": "loom.load(folder), and of language models loom.text.load(folder)",
        "gpu": _GPUS,
        "list_devices": _GPUS,
        "set_device": _GPUS,
        "is_gpu_available": _GPUS,
        "is_available": _GPUS,
        "GradientTape": _BY_HAND,
        "grad": _BY_HAND,
        "autograd": _BY_HAND,
        "value_and_grad": _BY_HAND,
        "function": "nothing to compile: a network is compiled when it is first used",
        "jit": "nothing to compile: a network is compiled when it is first used",
        "Variable": "a NumPy array, which is what loom takes and returns",
        "constant": "a NumPy array, which is what loom takes and returns",
        "array": "a NumPy array, which is what loom takes and returns",
        "accuracy": 'metrics=["accuracy"] of training and net.evaluate',
        "accuracy_score": 'metrics=["accuracy"] of training and net.evaluate',
        "plot_model": "loom.plot.network(net)",
        "EarlyStop": "loom.EarlyStopping(patience=3)",
        "to_categorical": _LABELS,
        "one_hot": _LABELS,
        "train_test_split": _SPLIT,
        "layers_of": "net.layers",
        "quantize": 'net.morph("int8")',
        "export": "loom.save_onnx(net, path), or net.save(path, deploy=True)",
        "load_state_dict": "net.load_state_dict(state)",
        "load_weights": "loom.load(path), or net.load_state_dict(...)",
        "onnx": "loom.save_onnx(net, path), and loom.load(path) to read",
        "hub": "loom.load(folder), which reads folders of the Hugging Face Hub",
        "compile": "nothing to compile: net.fit(x, y, loss=..., optimizer=...)",
        "Trainable": "loom.Network",
        "Layer": "loom.nn.Function, a layer of your own in Python, or loom.nn.Expr, a formula",
    },
    "loom.nn": {
        "Input": "loom.Sequential([...], input_shape=...), one sample's without the batch",
        "InputLayer": "loom.Sequential([...], input_shape=...), one sample's without the batch",
        "Concatenate": _COMBINED.format("concat", "concat"),
        "Add": "nn.Residual([...]) for a skip; " + _COMBINED.format("add", "add"),
        "Multiply": "nn.Parallel([a, b], ...); nn.SwiGLU and nn.Expr multiply, too",
        "Lambda": 'nn.Expr("x * x"), a formula that runs on every device, or nn.Function, in Python',
        "TimeDistributed": "the layer itself: nn.Dense works on the last axis of whatever it reads",
        "Bidirectional": "bidirectional=True of nn.LSTM, nn.GRU and nn.RNN",
        "Identity": "nothing: leave it out",
        "RepeatVector": "nn.Expr or nn.Reshape",
        "Rescaling": "nn.Scale(1 / 255)",
        "Normalization": "loom.data.columns(frame, target=...), which keeps what it scaled by",
        "StringLookup": "loom.data.columns(frame, target=...)",
        "CategoryEncoding": "loom.data.columns(frame, target=...)",
        "TextVectorization": "a tokenizer of your own, and its whole numbers for nn.Embedding",
        "RandomFlip": "loom.data.image_folder(path, augment=loom.data.Augment(flip=0.5))",
        "RandomRotation": "loom.data.image_folder(path, augment=loom.data.Augment(rotate=10))",
        "Module": "loom.Sequential([...], input_shape=...), or loom.Network; of your own nn.Function",
        "Parameter": "the parameters of layers: net.layers[0].parameters; nn.Function has its own",
        "ParameterList": "the parameters of layers: net.layers[0].parameters; nn.Function has its own",
        "ModuleDict": "cells of loom.Network, or nn.Parallel([...])",
        "TransformerEncoderLayer": _BLOCK,
        "TransformerEncoder": _BLOCK,
        "Transformer": "nn.MultiHeadAttention in nn.Residual; cross=True reads a second input",
        "functional": "the layers of loom.nn; losses stand in loom.losses, probabilities are "
        "net.predict_probabilities(x)",
        "init": "loom.initializers, and weight_initializer= of layers",
        "utils": "gradient_clip= of training, and net.clip_gradients(...) in a manual loop",
        "DataParallel": "`loom launch -n 2 SCRIPT`: docs/distributed.md",
        "LSTMCell": "nn.LSTM(units, stateful=True), which carries its state from call to call",
        "GRUCell": "nn.GRU(units, stateful=True), which carries its state from call to call",
        "EmbeddingBag": "nn.Embedding(vocabulary, width), nn.GlobalAvgPool1D() after nn.Permute((1, 0))",
        "SeparableConv2D": "nn.Conv2D(n, kernel_size=3, groups=n), nn.Conv2D(filters, kernel_size=1)",
        "DepthwiseConv2D": "nn.Conv2D(n, kernel_size=3, groups=n), of n channels",
        "LogSoftmax": 'nothing before loss="cross_entropy", which takes the outputs as they are',
    },
    "loom.data": {
        "DataLoader": _LOADER,
        "TensorDataset": "the arrays themselves: net.fit(x, y)",
        "Dataset": "the arrays themselves, net.fit(x, y), or any iterable of (x, y)",
        "train_test_split": _SPLIT,
        "random_split": _SPLIT,
        "KFold": "loom.data.folds((x, y), 5)",
        "image_dataset_from_directory": "loom.data.image_folder(path)",
        "ImageFolder": "loom.data.image_folder(path)",
        "ImageDataGenerator": "loom.data.image_folder(path, augment=loom.data.Augment(...))",
        "timeseries_dataset_from_array": "loom.data.windows(series, length, horizon)",
        "pad_sequences": "a list of arrays as they are, or loom.data.Padded; docs/guides/any-length.md",
        "read_csv": 'loom.data.columns(pandas.read_csv(path), target="...")',
    },
    "loom.activations": {
        "softmax": 'the layer nn.Softmax(); a loss of logits, such as "cross_entropy", needs none',
        "get": "loom.activations.resolve(name)",
    },
    "loom.optimizers": {
        "schedules": "loom.schedules, and schedule= of training",
        "lr_scheduler": "loom.schedules, and schedule= of training",
        "Optimizer": "the classes of loom.optimizers; the rule is one of theirs",
    },
    "loom.analysis": {
        "confusion_matrix": "loom.analysis.classification(net, (x, y)), and loom.plot.confusion_matrix of it",
    },
    "loom.text": {
        "pipeline": "loom.text.load(folder).generate(text)",
        "AutoTokenizer": "loom.text.load(folder), which has its tokenizer",
        "Tokenizer": "loom.text.load(folder), which has its tokenizer",
    },
    "loom.datasets": {
        "load_digits": "loom.datasets.digits()",
        "load_mnist": "loom.datasets.mnist(folder)",
        "load_iris": f"scikit-learn's: x, y = sklearn.datasets.load_iris(return_X_y=True); {_DOWNLOADS}",
        "fashion_mnist": "loom.datasets.mnist(folder), which reads every data set in MNIST's format",
        "cifar10": _DOWNLOADS,
        "cifar100": _DOWNLOADS,
        "imdb": _DOWNLOADS,
    },
    "loom.callbacks": {
        "LearningRateScheduler": "schedule=loom.schedules.Cosine(), or another, of training",
        "ProgbarLogger": "verbose=True of training",
        "RemoteMonitor": "loom.LambdaCallback(on_epoch_end=...)",
        "BackupAndRestore": 'run="runs/a" of training: docs/runs.md',
        "ModelSummary": "net.summary()",
        "RichProgressBar": "verbose=True of training",
        "TensorBoardLogger": "loom.TensorBoard(folder)",
        "WandbMetricsLogger": "loom.WandbLogger(project)",
    },
    "loom.models": {
        "load_model": "loom.load(path)",
        "save_model": "net.save(path)",
        "Sequential": "loom.Sequential([...], input_shape=...)",
        "Model": "loom.Network, or loom.Sequential([...], input_shape=...)",
        "resnet18": "loom.from_torch(module, example), of torchvision's or timm's",
        "clone_model": "copy.deepcopy(net)",
    },
}
"""By module what stands for names of others."""
