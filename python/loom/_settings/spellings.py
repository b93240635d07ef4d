"""What Keras, PyTorch and scikit-learn call things, and what loom calls them; for error messages alone."""

from __future__ import annotations

from collections.abc import Iterable

from loom._settings.elsewhere import PLACES

__all__ = [
    "argument_remark",
    "attribute_error",
    "is_elsewhere",
    "layer_remark",
    "method_error",
    "remark",
    "result_remark",
    "spelling",
]

_LEARNING_RATE = (
    "the learning rate is no setting of an optimizer, since schedules change it: "
    "TrainingConfig(learning_rate=...), or net.fit(x, y, learning_rate=...)"
)
_INFERRED = "leave it out: layers infer the size of their input from what comes before them"
_INPUT_SHAPE = "the network has it, without the batch: loom.Sequential([...], input_shape=...)"
_HALF = 'precision="mixed" trains with 16-bit products, net.morph("float16") packs the weights'
_BATCH_FIRST = "leave it out: sequences are (rows, steps, features)"

_NAMES = {
    # Layers.
    "linear": "Dense",
    "fullyconnected": "Dense",
    "conv1d": "Conv1D",
    "conv2d": "Conv2D",
    "conv3d": "Conv3D",
    "convolution2d": "Conv2D",
    "convtranspose1d": "ConvTranspose1D",
    "convtranspose2d": "ConvTranspose2D",
    "convtranspose3d": "ConvTranspose3D",
    "conv1dtranspose": "ConvTranspose1D",
    "conv2dtranspose": "ConvTranspose2D",
    "conv3dtranspose": "ConvTranspose3D",
    "maxpooling1d": "MaxPool1D",
    "maxpooling2d": "MaxPool2D",
    "maxpooling3d": "MaxPool3D",
    "maxpool1d": "MaxPool1D",
    "maxpool2d": "MaxPool2D",
    "maxpool3d": "MaxPool3D",
    "averagepooling1d": "AvgPool1D",
    "averagepooling2d": "AvgPool2D",
    "averagepooling3d": "AvgPool3D",
    "avgpool1d": "AvgPool1D",
    "avgpool2d": "AvgPool2D",
    "avgpool3d": "AvgPool3D",
    "globalaveragepooling1d": "GlobalAvgPool1D",
    "globalaveragepooling2d": "GlobalAvgPool2D",
    "globalmaxpooling1d": "GlobalMaxPool1D",
    "globalmaxpooling2d": "GlobalMaxPool2D",
    "adaptiveaveragepooling1d": "AdaptiveAvgPool1D",
    "adaptiveaveragepooling2d": "AdaptiveAvgPool2D",
    "adaptiveaveragepooling3d": "AdaptiveAvgPool3D",
    "adaptivemaxpooling1d": "AdaptiveMaxPool1D",
    "adaptivemaxpooling2d": "AdaptiveMaxPool2D",
    "adaptivemaxpooling3d": "AdaptiveMaxPool3D",
    "adaptiveavgpool1d": "AdaptiveAvgPool1D",
    "adaptiveavgpool2d": "AdaptiveAvgPool2D",
    "adaptiveavgpool3d": "AdaptiveAvgPool3D",
    "adaptivemaxpool1d": "AdaptiveMaxPool1D",
    "adaptivemaxpool2d": "AdaptiveMaxPool2D",
    "adaptivemaxpool3d": "AdaptiveMaxPool3D",
    "upsample": "UpSampling2D",
    "upsampling": "UpSampling2D",
    "upsamplingnearest2d": "UpSampling2D",
    "upsamplingbilinear2d": "UpSampling2D",
    "interpolate": "UpSampling2D",
    "resize": "UpSampling2D",
    "upsampling1d": "UpSampling1D",
    "upsampling2d": "UpSampling2D",
    "upsampling3d": "UpSampling3D",
    "depth_to_space": "PixelShuffle",
    "depthtospace": "PixelShuffle",
    "space_to_depth": "PixelUnshuffle",
    "spacetodepth": "PixelUnshuffle",
    "cropping1d": "Crop1D",
    "cropping2d": "Crop2D",
    "cropping3d": "Crop3D",
    "centercrop": "Crop2D",
    "gaussian_noise": "GaussianNoise",
    "instancenorm1d": "InstanceNorm",
    "instancenorm2d": "InstanceNorm",
    "instancenorm3d": "InstanceNorm",
    "instancenormalization": "InstanceNorm",
    "batchnorm1d": "BatchNorm",
    "batchnorm2d": "BatchNorm",
    "batchnorm3d": "BatchNorm",
    "batchnormalization": "BatchNorm",
    "layernormalization": "LayerNorm",
    "groupnormalization": "GroupNorm",
    "multiheadattention": "MultiHeadAttention",
    "attention": "MultiHeadAttention",
    "simplernn": "RNN",
    "dropout1d": "SpatialDropout1D",
    "dropout2d": "SpatialDropout2D",
    "dropout3d": "SpatialDropout3D",
    "zeropad1d": "ZeroPadding1D",
    "zeropad2d": "ZeroPadding2D",
    "zeropad3d": "ZeroPadding3D",
    "modulelist": "Sequential",
    # Losses.
    "crossentropyloss": "cross_entropy",
    "crossentropy": "cross_entropy",
    "categorical_crossentropy": "cross_entropy",
    "categoricalcrossentropy": "cross_entropy",
    "sparse_categorical_crossentropy": "cross_entropy",
    "sparsecategoricalcrossentropy": "cross_entropy",
    "softmax_cross_entropy": "cross_entropy",
    "logloss": "cross_entropy",
    "log_loss": "cross_entropy",
    "nllloss": "nll",
    "nll_loss": "nll",
    "mseloss": "mse",
    "mse_loss": "mse",
    "l2": "mse",
    "mean_squared_error": "mse",
    "meansquarederror": "mse",
    "squared_error": "mse",
    "l1": "mae",
    "l1loss": "mae",
    "l1_loss": "mae",
    "mean_absolute_error": "mae",
    "meanabsoluteerror": "mae",
    "huberloss": "Huber huber",
    "smoothl1loss": "Huber huber",
    "smooth_l1": "huber",
    "logcosh": "log_cosh",
    "kl": "kl_divergence",
    "kldiv": "kl_divergence",
    "kl_div": "kl_divergence",
    "kldivloss": "kl_divergence",
    "kldivergence": "kl_divergence",
    "diceloss": "Dice dice",
    "ctcloss": "CTC ctc",
    "tripletmarginloss": "Triplet triplet",
    "bceloss": "binary_cross_entropy",
    "bcewithlogitsloss": "binary_cross_entropy",
    "bce": "binary_cross_entropy",
    "binary_crossentropy": "binary_cross_entropy",
    "binarycrossentropy": "binary_cross_entropy",
    # Metrics.
    "acc": "accuracy",
    "categorical_accuracy": "accuracy",
    "sparse_categorical_accuracy": "accuracy",
    "binary_accuracy": "accuracy",
    "top_k_categorical_accuracy": "top_k_accuracy",
    "r2_score": "r2",
    "f1score": "f1",
    "fscore": "f1",
    "meaniou": "iou",
    "mean_iou": "iou",
    "categoricalaccuracy": "Accuracy accuracy",
    "sparsecategoricalaccuracy": "Accuracy accuracy",
    "binaryaccuracy": "Accuracy accuracy",
    "accuracy_score": "Accuracy accuracy",
    "topkcategoricalaccuracy": "TopKAccuracy top_k_accuracy",
    "f1_score": "F1 f1",
    "roc_auc_score": "AUC auc",
    "plot_model": "network",
    "history": "training_curves",
    "plot_history": "training_curves",
    "cm": "confusion_matrix",
    "heatmap": "confusion_matrix",
    "classification_report": "classification",
    "confusionmatrix": "classification",
    "constant_": "Constant",
    "randomnormal": "Normal",
    "randomuniform": "Uniform",
    "truncated_normal": "TruncatedNormal",
    "mlpclassifier": "LoomClassifier",
    "kerasclassifier": "LoomClassifier",
    "mlpregressor": "LoomRegressor",
    "kerasregressor": "LoomRegressor",
    "input_length": "length",
    "binaryiou": "iou",
    "jaccard": "iou",
    "roc_auc": "auc",
    "auroc": "auc",
    # Schedules.
    "cosineannealinglr": "Cosine",
    "cosinedecay": "Cosine",
    "cosineannealing": "cosine",
    "cosine_annealing": "cosine",
    "cosineannealingwarmrestarts": "CosineRestarts",
    "steplr": "Step",
    "linearlr": "Linear",
    "exponentiallr": "Exponential",
    "exponentialdecay": "Exponential",
    "polynomiallr": "Polynomial",
    "onecyclelr": "OneCycle",
    # Callbacks.
    "reducelronplateau": "ReduceLROnPlateau",
    "backupandrestore": "RunFolder",
    # Settings.
    "out_features": "units filters",
    "output_size": "units size",
    "hidden_size": "units hidden width",
    "hidden_dim": "units hidden width",
    "num_units": "units",
    "n_units": "units",
    "neurons": "units",
    "out_channels": "filters",
    "channels": "filters",
    "kernel": "kernel_size pool_size",
    "filter_size": "kernel_size",
    "kernel_size": "pool_size",
    "strides": "stride",
    "dilation_rate": "dilation",
    "num_embeddings": "vocabulary",
    "vocab_size": "vocabulary",
    "num_words": "vocabulary",
    "input_dim": "vocabulary",
    "embedding_dim": "width",
    "embed_dim": "width",
    "output_dim": "width units",
    "num_heads": "heads",
    "n_heads": "heads",
    "nhead": "heads",
    "key_dim": "head_dim",
    "num_layers": "layers",
    "p": "rate dropout",
    "dropout_rate": "rate dropout",
    "prob": "rate",
    "keep_prob": "rate",
    "rate": "dropout",
    "act": "activation",
    "nonlinearity": "activation",
    "use_bias": "bias",
    "eps": "epsilon",
    "kernel_initializer": "weight_initializer",
    "num_groups": "groups",
    "scale_factor": "scale",
    "upscale_factor": "factor",
    "downscale_factor": "factor",
    "block_size": "factor",
    "interpolation": "mode",
    "stddev": "standard_deviation",
    "std": "standard_deviation",
    "sigma": "standard_deviation",
    "cropping": "before",
    "affine": "gain",
    "elementwise_affine": "gain",
    "negative_slope": "slope",
    "start_dim": "axes",
    "betas": "beta1",
    "beta_1": "beta1",
    "beta_2": "beta2",
    "rho": "alpha",
    "decay": "weight_decay",
    "l2_regularization": "weight_decay",
    "lr": "learning_rate",
    "eta": "learning_rate",
    "learning_rate_init": "learning_rate",
    "batch": "batch_size",
    "bs": "batch_size",
    "nb_epoch": "epochs",
    "num_epochs": "epochs",
    "n_epochs": "epochs",
    "max_epochs": "epochs",
    "max_iter": "epochs",
    "loss_fn": "loss",
    "criterion": "loss",
    "loss_function": "loss",
    "opt": "optimizer",
    "lr_scheduler": "schedule",
    "scheduler": "schedule",
    "clipnorm": "gradient_clip",
    "grad_clip": "gradient_clip",
    "max_grad_norm": "gradient_clip",
    "clipvalue": "clip_value",
    "kernel_regularizer": "regularizers",
    "regularizer": "regularizers",
    "random_state": "seed",
    "val_split": "validation_split",
    "valid_split": "validation_split",
    "test_size": "validation_split",
    "validation_freq": "validation_frequency",
    "class_weights": "class_weight",
    "gradient_accumulation_steps": "accumulate",
    "accumulate_grad_batches": "accumulate",
    "n_iter_no_change": "patience",
    "path": "filepath directory filename",
    "file": "filepath filename",
    "save_best": "save_best_only",
    "save_top_k": "save_best_only",
    "restore_best": "restore_best_weights",
    "tol": "min_delta",
    "step_size": "steps",
    "t_max": "steps",
    # Types.
    "half": "float16",
    "fp16": "float16",
    "fp32": "float32",
    "float": "float32",
    "double": "float64",
    "fp64": "float64",
    "bf16": "bfloat16",
    "amp": "mixed",
    "mixed_float16": "mixed",
    "mixed_bfloat16": "mixed",
    # Devices.
    "cuda": "gpu",
    "cuda:0": "gpu:0",
    "mps": "gpu",
}
"""In lower case; of several names the first that is known where it was asked for."""

_SETTINGS = {
    "lr": _LEARNING_RATE,
    "learning_rate": _LEARNING_RATE,
    "in_features": _INFERRED,
    "in_channels": _INFERRED,
    "input_size": _INFERRED,
    "input_dim": _INFERRED,
    "num_features": _INFERRED,
    "num_channels": _INFERRED,
    "normalized_shape": _INFERRED,
    "input_shape": _INPUT_SHAPE,
    "batch_input_shape": _INPUT_SHAPE,
    "batch_first": _BATCH_FIRST,
    "data_format": "images are (channels, height, width) here; np.moveaxis(x, -1, 1) brings them there",
    "from_logits": 'loss="cross_entropy" takes logits, loss="nll" probabilities',
    "reduction": "losses are means; how much a sample counts is sample_weight",
    "inplace": "leave it out",
    "dim": "leave it out: classes are the last axis, or the channels of images",
    "axis": "leave it out: classes are the last axis, or the channels of images",
    "amsgrad": "it is not there; adamw is usual",
    "shuffle_buffer": "arrays are shuffled as a whole: shuffle=True",
    "num_workers": "leave it out: arrays need no workers, and other data is iterated as it comes",
    "patience": "early_stopping=loom.EarlyStopping(patience=...)",
    "workers": "leave it out",
    "steps_per_epoch": "an epoch is all of the data; give an iterable of as many batches",
    "weight_decay": "a setting of optimizers: optimizer=loom.AdamW(weight_decay=0.01)",
    "momentum": "a setting of optimizers: optimizer=loom.SGD(momentum=0.9)",
    "nesterov": "a setting of optimizers: optimizer=loom.SGD(momentum=0.9, nesterov=True)",
    "kernel_regularizer": "weights decay by the optimizer: optimizer=loom.AdamW(weight_decay=0.01)",
    "bias_regularizer": "weights decay by the optimizer: optimizer=loom.AdamW(weight_decay=0.01)",
    "kernel_constraint": "leave it out",
    "name": 'layers have no names: a layer is net[0, 0, 0, 2], and its path "0.0.0.2" is what states call it',
    "trainable": "net[0, 0, 0, 0].trainable = False once it stands in a network, or net.freeze(...)",
    "min_lr": "min_scale= is the least that all reductions together multiply the rate by: 0.01, say",
    "mask_zero": "sequences of any length go in as a list of arrays, or as loom.data.Padded",
    "padding_idx": "sequences of any length go in as a list of arrays, or as loom.data.Padded",
    "embed_dim": _INFERRED,
    "go_backwards": "bidirectional=True reads both ways",
    "unroll": "leave it out",
    "device": 'the network has it: net.to("gpu"), or device= of training',
    "dtype": 'the network has it: precision= of loom.Network; net.morph("int8") packs weights',
    "callbacks": "callbacks=[...] goes to loom.train and net.fit",
    "validation_data": "validation= of loom.train, validation_data= of net.fit",
    "x": "data goes to loom.train(net, (x, y), config) and net.fit(x, y)",
    "log_dir": "the folder comes first: loom.TensorBoard(folder)",
    "save_weights_only": "leave it out: optimizer=False leaves the training state out",
    "save_freq": "run=loom.RunFolder(folder, every_steps=...) saves within epochs",
    "initial_epoch": "resume=True goes on where the last training stopped",
}
"""What is said of settings that have no counterpart."""

_VALUES = {
    ("activation", "softmax"): (
        'it is a layer, nn.Softmax(); loss="cross_entropy" takes the outputs as they are and needs none'
    ),
    ("activation", "log_softmax"): 'loss="cross_entropy" takes the outputs as they are and needs none',
    ("metric", "rmse"): 'metrics=["mse"] is its square',
    ("metric", "root_mean_squared_error"): 'metrics=["mse"] is its square',
    ("precision", "float16"): _HALF,
    ("precision", "bfloat16"): _HALF,
}
"""What is said of values that have no counterpart."""

_METHODS = {
    "compile": "net.fit(x, y, loss=..., optimizer=..., metrics=[...]), which takes all of it",
    "add": "net[0, 0, 0].add(...): layers go into a cell",
    "append": "net[0, 0, 0].add(...): layers go into a cell",
    "parameters": "net.state_dict(), by name, and net.layers[0].parameters",
    "named_parameters": "net.state_dict(), by name",
    "get_weights": "net.state_dict(), by name",
    "set_weights": "net.load_state_dict(...), by name",
    "trainable_weights": "net.state_dict(), and net.freeze(...) for what is to stay as it is",
    "weights": "net.state_dict(), by name",
    "count_params": "net.summary()",
    "train": "loom.train(net, (x, y), config), or net.fit(x, y, epochs=...)",
    "training": "no mode: predict and evaluate leave dropout off, training has it on",
    "eval": "no mode: predict and evaluate leave dropout off, and net.evaluate((x, y)) measures",
    "cuda": 'net.to("gpu")',
    "gpu": 'net.to("gpu")',
    "cpu": 'net.to("cpu")',
    "half": 'net.morph("float16"), or precision="mixed" to train',
    "float": 'loom.Network(..., precision="float32")',
    "double": 'loom.Network(..., precision="float64")',
    "zero_grad": "net.zero_gradients()",
    "step": "net.apply_gradients(), or loom.Trainer(net, config).step(x, y)",
    "train_on_batch": "loom.Trainer(net, config).step(x, y)",
    "train_step": "loom.Trainer(net, config).step(x, y)",
    "test_on_batch": "net.evaluate((x, y))",
    "predict_on_batch": "net.predict(x)",
    "predict_proba": "net.predict_probabilities(x)",
    "softmax": "net.predict_probabilities(x)",
    "pop": "net[0, 0, 0].pop(): layers stand in cells",
    "insert": "net[0, 0, 0].insert(place, layer): layers stand in cells",
    "export": "loom.save_onnx(net, path), or net.save(path, deploy=True)",
    "to_onnx": "loom.save_onnx(net, path)",
    "to_torch": "loom.to_torch(net)",
    "plot": "loom.plot.network(net), and result.plot() of what net.fit returns",
    "requires_grad": "net.freeze(...) and net.unfreeze(...)",
    "stop_training": "raise loom.StopTraining in a callback, or its own self.stop_training",
    "loss": "loss= of net.fit and TrainingConfig",
    "metrics": "metrics= of net.fit and TrainingConfig",
    "learning_rate": "learning_rate= of net.fit and TrainingConfig",
    "lr": "learning_rate= of net.fit and TrainingConfig",
    "score": "net.evaluate((x, y), metrics=[...])",
    "partial_fit": "loom.Trainer(net, config).step(x, y)",
    "transform": "net.activations(x), what every layer makes",
    "save_weights": "net.save(path)",
    "load_weights": "loom.load(path), or net.load_state_dict(...)",
    "load": "loom.load(path)",
    "get_config": "net.config",
    "to_dict": "net.config.to_config()",
    "get_layer": "net.layers, and net[0, 0, 0, 2] by place",
    "modules": "net.layers",
    "children": "net.cells, net.layers",
    "named_modules": "net.layers, each with its path",
    "apply": "net.layers, to go through",
    "register_forward_hook": "net.observe(...), or net.activations(x)",
    "requires_grad_": "net.freeze(...) and net.unfreeze(...)",
    "trainable": "net.freeze(...) and net.unfreeze(...)",
    "clone": "copy.deepcopy(net)",
    "copy": "copy.deepcopy(net)",
    "fit_generator": "net.fit(batches), with any iterable of (x, y)",
    "history": "the result of net.fit(...): loss_history, metrics",
    "summary_text": "net.summary()",
    "quantize": 'net.morph("int8")',
    "onnx": "loom.save_onnx(net, path)",
}
"""What a network's methods elsewhere are here."""

_ARGUMENTS = {
    "verbose": "leave it out: only training tells of itself, by its own verbose=",
    "steps": "leave it out",
    "workers": "leave it out",
    "callbacks": "leave it out: callbacks go to training",
    "return_dict": "leave it out: measures come by name",
    "sample_weight": "weights go in with the data, (x, y, weight)",
    "line_length": "leave it out",
    "show_trainable": "leave it out: the table tells what is frozen",
    "expand_nested": "depth= says how deep into layers that hold others",
    "save_format": "leave it out: files have loom's own format",
    "overwrite": "leave it out: a file that is there is written over, whole or not at all",
    "include_optimizer": "optimizer=True keeps the training state, too",
    "name": "leave it out: networks have no names; net.card = loom.ModelCard(name=...)",
    "filepath": "the path comes first",
}
"""What is said of arguments of methods that have no counterpart."""

_OF_LAYERS = {
    "get_weights": "layer.parameters, by name",
    "set_weights": 'layer.parameters["weight"] = array, or layer.weight = array',
    "kernel": "layer.weight, (units, inputs); of a convolution (filters, channels, ...)",
    "gamma": "layer.gain",
    "beta": "layer.bias",
    "embeddings": "layer.weight",
    "output": "layer.activation after net.forward(x), or net.activations(x)",
    "input": "net.cut(until=layer), a network that ends there",
    "name": "layer.path, where it stands",
    "trainable_weights": "layer.parameters, and layer.trainable",
    "variables": "layer.parameters",
    "get_config": "layer.config",
    "count_params": "net.summary()",
    "grad": "layer.gradients, by name",
    "requires_grad": "layer.trainable",
    "register_forward_hook": "net.observe(...), or net.activations(x)",
    "shape": "layer.input_shape, layer.output_shape",
}
"""What stands for attributes of layers elsewhere."""

_OF_RESULTS = {
    "epoch": "range(len(result.loss_history)), the epochs that were completed",
    "epochs": "len(result.loss_history), how many were completed",
    "loss": "result.final_loss; of every epoch result.loss_history",
    "losses": "result.loss_history, one number an epoch",
    "losses_": "result.loss_history, one number an epoch",
    "train_loss": "result.loss_history, one number an epoch",
    "params": "the config that training was given",
    "model": "the network that was trained: result only tells of it",
    "best_epoch": "numpy.argmin(result.loss_history), from 0",
    "keys": "result.history.keys()",
    "items": "result.history.items()",
    "to_dict": "result.history",
}
"""What stands for attributes of what training gives back elsewhere."""

_MODULES = {
    "optim": "loom.optimizers",
    "optimizer": "loom.optimizers",
    "loss": "loom.losses",
    "functional": "loom.losses and the layers of loom.nn",
    "metric": "loom.metrics",
    "callback": "loom.callbacks",
    "lr_scheduler": "loom.schedules",
    "schedulers": "loom.schedules",
    "initializer": "loom.initializers",
    "init": "loom.initializers",
    "keras": "loom.nn",
    "Model": "loom.Network, or loom.Sequential([...], input_shape=...)",
    "Module": "loom.Network, or loom.Sequential([...], input_shape=...)",
    "Input": "loom.Sequential([...], input_shape=...), one sample's without the batch",
    "tensor": "a NumPy array, which is what loom takes and returns",
    "Tensor": "a NumPy array, which is what loom takes and returns",
    "from_numpy": "the array itself: loom takes and returns NumPy arrays",
    "manual_seed": "seed= of the network and of TrainingConfig",
    "set_seed": "seed= of the network and of TrainingConfig",
    "no_grad": "net.predict(x), which keeps nothing for gradients",
    "cuda": "loom.devices()",
    "device": 'loom.devices(); net.to("gpu")',
    "save": "net.save(path)",
    "load_model": "loom.load(path)",
    "seed": "seed= of the network and of TrainingConfig",
    "fit": "net.fit(x, y, epochs=...), or loom.train(net, (x, y), config)",
    "predict": "net.predict(x)",
    "DataLoader": "arrays, or any iterable of (x, y)",
    "Dataset": "arrays, or any iterable of (x, y)",
    "CrossEntropyLoss": 'loss="cross_entropy"',
    "MSELoss": 'loss="mse"',
}
"""What stands for names of `loom` that are names elsewhere."""

_FUNCTIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "silu": "silu",
    "swish": "silu",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
    "softplus": "softplus",
    "mish": "mish",
    "hardswish": "hardswish",
    "hardsigmoid": "hardsigmoid",
    "selu": "selu",
}

_INITIALIZERS = {
    "glorotnormal": "xavier_normal",
    "glorotuniform": "xavier_uniform",
    "xaviernormal": "xavier_normal",
    "xavieruniform": "xavier_uniform",
    "henormal": "he_normal",
    "heuniform": "he_uniform",
    "kaimingnormal": "he_normal",
    "kaiminguniform": "he_uniform",
    "lecunnormal": "lecun_normal",
    "zeros": "zeros",
    "ones": "ones",
}
"""In lower case and without dashes below."""

_LOSSES = frozenset(
    {
        "binary_cross_entropy",
        "binary_focal",
        "contrastive",
        "cross_entropy",
        "ctc",
        "dice",
        "hinge",
        "huber",
        "kl_divergence",
        "log_cosh",
        "mae",
        "mse",
        "nll",
        "poisson",
        "quantile",
        "squared_hinge",
        "triplet",
    }
)


def spelling(given: str, known: Iterable[str]) -> str | None:
    """Returns loom's name for a name of somewhere else, where it is among those that are known."""
    names = set(known)
    key = given.rsplit(".", 1)[-1].lower()
    return next((name for name in _NAMES.get(key, "").split() if name in names), None)


def remark(what: str, given: str) -> str | None:
    """Returns what is said of a setting, or a value of one, that has no counterpart in loom."""
    if what.endswith((" setting", " argument")):
        return _SETTINGS.get(given.lower())
    return _VALUES.get((what.rsplit(" ", 1)[-1], given.lower()))


def argument_remark(name: str) -> str | None:
    """Returns what is said of an argument of a network's methods elsewhere that loom's do not have."""
    return _ARGUMENTS.get(name)


def layer_remark(name: str) -> str | None:
    """Returns what stands for an attribute of layers elsewhere."""
    return _OF_LAYERS.get(name)


def result_remark(name: str) -> str | None:
    """Returns what stands for an attribute of what training gives back elsewhere."""
    if name in _OF_RESULTS:
        return _OF_RESULTS[name]
    if name.startswith("val_") or name in ("acc", "accuracy", "mae", "mse"):
        return f'result.history["{name}"], one number an epoch'
    return None


def attribute_error(module: str, name: str, known: Iterable[str]) -> AttributeError:
    """Returns the error for what a module of loom does not have; it says what loom has instead.

    Args:
        module: The module's name.
        name: What was asked for.
        known: What it has.
    """
    said = f"module '{module}' has no attribute '{name}'"
    if name.startswith("_"):
        return AttributeError(said)
    known = list(known)
    if (told := PLACES.get(module, {}).get(name)) is not None:
        return AttributeError(f"{said}; instead there is {told}")
    ours = spelling(name, known)
    if ours is not None:
        return AttributeError(f"{said}; loom's is {module}.{ours}")
    if module == "loom" and name in _MODULES:
        return AttributeError(f"{said}; instead there is {_MODULES[name]}")
    if (function := _FUNCTIONS.get(name.lower())) is not None:
        return AttributeError(
            f'{said}; loom\'s is loom.nn.Activation("{function}"), or activation="{function}" of a layer'
        )
    if (loss := spelling(name, _LOSSES)) is not None:
        return AttributeError(f'{said}; losses are settings of training: loss="{loss}"')
    if (drawn := _INITIALIZERS.get(name.lower().replace("_", "").rstrip("_"))) is not None:
        return AttributeError(f'{said}; of a layer it is weight_initializer="{drawn}"')
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1, cutoff=0.8)
    return AttributeError(f"{said}; did you mean {module}.{near[0]}?" if near else said)


_SET = frozenset(
    {"learning_rate", "loss", "lr", "metrics", "requires_grad", "stop_training", "trainable", "training"}
)


def is_elsewhere(name: str) -> bool:
    """Returns whether networks elsewhere are told something by an attribute of this name."""
    return name in _SET


def method_error(name: str) -> AttributeError:
    """Returns the error for what a network does not have; it says what loom has instead."""
    said = f"'Network' object has no attribute '{name}'"
    return AttributeError(f"{said}; instead there is {_METHODS[name]}" if name in _METHODS else said)
