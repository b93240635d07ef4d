"""Writes sklearn_*.onnx and .npz: small models as skl2onnx exports them, with what they compute.

    python tests/golden/onnx/sklearn_models.py

needs scikit-learn 1.9.1, skl2onnx 1.20.0 and onnx 1.23.2.
"""

import warnings
from pathlib import Path

import numpy as np
from skl2onnx import to_onnx
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

HERE = Path(__file__).parent
warnings.filterwarnings("ignore")
rng = np.random.default_rng(0)
X = rng.normal(size=(60, 4)).astype(np.float32)
NUMBERS = X @ rng.normal(size=4)
TWO, THREE = (NUMBERS > 0).astype(int), np.digitize(NUMBERS, [-1, 1])
MODELS = {
    "mlp_regressor": (
        MLPRegressor(hidden_layer_sizes=(6, 5), activation="tanh", max_iter=20),
        NUMBERS,
        "predict",
    ),
    "mlp_classifier": (
        make_pipeline(StandardScaler(), MLPClassifier(hidden_layer_sizes=(6,), max_iter=20)),
        THREE,
        "predict_proba",
    ),
    "mlp_two": (
        MLPClassifier(hidden_layer_sizes=(5,), activation="logistic", max_iter=20),
        TWO,
        "predict_proba",
    ),
    "linear": (make_pipeline(MinMaxScaler(), LinearRegression()), NUMBERS, "predict"),
    "logistic": (LogisticRegression(), THREE, "predict_proba"),
}
for name, (model, y, ask) in MODELS.items():
    model.fit(X, y)
    options = {"zipmap": False} if ask == "predict_proba" else {}
    exported = to_onnx(model, X[:1], options=options or None, target_opset=18)
    (HERE / f"sklearn_{name}.onnx").write_bytes(exported.SerializeToString())
    made = getattr(model, ask)(X[:3])
    np.savez(HERE / f"sklearn_{name}.npz", x=X[:3], y=made.reshape(3, -1).astype(np.float32))
