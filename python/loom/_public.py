"""Where each public name stands; tools/public_names.py writes it from __init__.py."""

HOMES = {
    name: module
    for module, names in {
        "loom": (
            "analysis callbacks data datasets initializers losses metrics models nn observers optimizers "
            "plot schedules serving sklearn tensors text"
        ),
        "loom._native": "__version__",
        "loom.architecture": "Categories CellConfig LinkConfig NetworkConfig",
        "loom.callbacks": (
            "AimLogger CSVLogger Callback DeviationHistory EarlyStopping ExponentialMovingAverage History "
            "LambdaCallback Lookahead MLflowLogger MaxNorm ModelCheckpoint ReduceLROnPlateau RunRecorder "
            "StochasticWeightAveraging StopTraining TensorBoard TerminateOnNaN WandbLogger WeightHistograms"
        ),
        "loom.card": "ModelCard",
        "loom.catalogue": "LayerKind NumericType dtypes layers",
        "loom.checkup": "doctor",
        "loom.data": "TrainingBatch",
        "loom.device": (
            "Device DeviceList FrameStatistics devices frame_statistics init_gpu release_gpu "
            "reset_frame_statistics time_frames"
        ),
        "loom.diagnosis": "DoctorWarning",
        "loom.errors": (
            "CellIndexError ConfigError DTypeError DataError DeviceError FileError InternalError "
            "InvalidValueError LoomError MissingExtraError NonFiniteError OutOfMemoryError "
            "SerializationError ShapeError StateError"
        ),
        "loom.full_batch": "LBFGS",
        "loom.gradient_check": "check_gradients",
        "loom.introspection": "describe has_method signature",
        "loom.local_training": "LocalResult train_locally",
        "loom.measuring": "BottleneckWarning MeasureHistory Measures Observe",
        "loom.measuring.report": "LayerReport TweenReport",
        "loom.mesh": "Mesh",
        "loom.mesh.stepping": "Stepper SteppingResult train_stepping",
        "loom.models.gguf.writing": "save_gguf",
        "loom.models.inspecting": "inspect",
        "loom.models.loading": "load",
        "loom.models.onnx": "save_onnx",
        "loom.models.plain": "export_model import_model",
        "loom.models.torch": "from_torch to_torch",
        "loom.network": "Network Sequential",
        "loom.network.session": "Session",
        "loom.optimizers": (
            "Adadelta Adafactor Adagrad Adam AdamW Adamax LAMB Lion Muon NAdam RAdam RMSprop SGD"
        ),
        "loom.predictors": "Predictors",
        "loom.rate_search": "RateSearch find_rate",
        "loom.reproduction": "Reproduction reproduce",
        "loom.runs": "read_run",
        "loom.schemas": "json_schema",
        "loom.tensors": "TensorEntry TensorFile open_tensors",
        "loom.text.measuring": "perplexity",
        "loom.trainer": "Trainer",
        "loom.training": "train",
        "loom.training.config": "TrainingConfig",
        "loom.training.evaluation": "evaluate",
        "loom.training.receipt": "Receipt",
        "loom.training.result": "TrainingResult",
        "loom.training.run_folder": "RunFolder",
        "loom.tweening": "TweenConfig",
        "loom.tweening.state": "TweenState",
        "loom.tweening.trainer": "TweenTrainer",
    }.items()
    for name in names.split()
}
