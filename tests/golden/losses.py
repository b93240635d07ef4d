"""Writes losses.json: values and gradients of PyTorch's losses in float64.

    python tests/golden/losses.py

needs PyTorch. Inputs are rounded to three decimals, so that the file holds
them exactly. Arrays are in the engine's layout, (rows, outer, classes, inner):
features and sequences have the classes last, images have them second.
"""

import json
import math
from pathlib import Path

import torch
import torch.nn.functional as F

torch.manual_seed(20)
torch.set_default_dtype(torch.float64)


def rounded(tensor):
    return (tensor * 1000).round() / 1000


def flat(tensor):
    """As a list, with 14 significant digits."""
    values = tensor.detach().reshape(-1).tolist()
    return [float(f"{value:.14g}") for value in values] if tensor.is_floating_point() else values


def classes_second(tensor, extents):
    """(rows, outer, classes, inner) as PyTorch wants it: (rows, classes, outer, inner)."""
    return tensor.reshape(extents).transpose(1, 2).contiguous()


def case(name, function, extents, output, target, value, **options):
    """Records one loss; `value` maps the engine-layout output to a scalar."""
    output = output.reshape(extents).requires_grad_()
    loss = value(output)
    (gradient,) = torch.autograd.grad(loss, output)
    return {
        "name": name,
        "function": function,
        "extents": list(extents),
        "output": flat(output),
        "target": flat(target),
        "class_targets": not target.is_floating_point(),
        "loss": loss.item(),
        "gradient": flat(gradient),
        **{key: flat(option) if torch.is_tensor(option) else option for key, option in options.items()},
    }


def weighted_mean(losses, sample_weight, counts):
    """`losses` and `counts` have the rows first; one weight a row."""
    shape = (-1,) + (1,) * (losses.dim() - 1)
    factors = sample_weight.reshape(shape)
    return (losses * factors).sum() / (counts * factors).sum()


LAYOUTS = {
    "rows": (3, 1, 7, 1),
    "wide rows": (2, 1, 37, 1),
    "images": (2, 1, 3, 6),
    "wide images": (2, 1, 4, 17),
    "sequences": (2, 3, 4, 1),
    "one class": (4, 1, 1, 1),
    "one row": (1, 1, 16, 1),
}


def cross_entropies():
    for layout, extents in LAYOUTS.items():
        rows, outer, classes, inner = extents
        logits = rounded(torch.randn(extents) * 3)
        hard = torch.randint(0, classes, (rows, outer, inner))
        soft = rounded(torch.softmax(torch.randn(extents), dim=2))
        class_weight = rounded(torch.rand(classes) + 0.1)
        sample_weight = rounded(torch.rand(rows) + 0.1)
        for target, kind in ((hard, "classes"), (soft, "soft")):
            torch_target = target if kind == "classes" else classes_second(target, extents)
            for weight in (None, class_weight):
                for smoothing in (0.0, 0.15):
                    options = {"weight": weight, "label_smoothing": smoothing}

                    def mean(o):
                        return F.cross_entropy(classes_second(o, extents), torch_target, **options)

                    def weighted(o):
                        losses = F.cross_entropy(
                            classes_second(o, extents), torch_target, reduction="none", **options
                        )
                        counts = torch.ones_like(losses)
                        if weight is not None and kind == "classes":
                            counts = weight[target]
                        return weighted_mean(losses, sample_weight, counts)

                    given = {"class_weight": weight, "label_smoothing": smoothing, "temperature": 1.0}
                    name = f"cross_entropy {layout} {kind} weight {weight is not None} smoothing {smoothing}"
                    yield case(name, "cross_entropy", extents, logits, target, mean, **given)
                    name += " sample weights"
                    yield case(
                        name,
                        "cross_entropy",
                        extents,
                        logits,
                        target,
                        weighted,
                        sample_weight=sample_weight,
                        **given,
                    )

    extents = (4, 1, 5, 1)
    logits = rounded(torch.randn(extents) * 3)
    hard = torch.randint(0, 5, (4, 1, 1))
    yield case(
        "cross_entropy temperature",
        "cross_entropy",
        extents,
        logits,
        hard,
        lambda o: F.cross_entropy(classes_second(o / 2.5, extents), hard),
        temperature=2.5,
    )
    yield case(
        "cross_entropy huge logits",
        "cross_entropy",
        extents,
        logits * 1000,
        hard,
        lambda o: F.cross_entropy(classes_second(o, extents), hard),
        temperature=1.0,
    )


def negative_log_likelihoods():
    for layout, extents in LAYOUTS.items():
        rows, outer, classes, inner = extents
        probabilities = rounded(torch.softmax(torch.randn(extents), dim=2)) + 0.001
        hard = torch.randint(0, classes, (rows, outer, inner))
        soft = rounded(torch.softmax(torch.randn(extents), dim=2))
        class_weight = rounded(torch.rand(classes) + 0.1)
        for weight in (None, class_weight):
            name = f"nll {layout} weight {weight is not None}"

            def mean(o):
                return F.nll_loss(classes_second(o, extents).log(), hard, weight=weight)

            yield case(f"{name} classes", "nll", extents, probabilities, hard, mean, class_weight=weight)

            def mean_of_soft(o):
                factors = 1.0 if weight is None else weight.reshape(1, 1, -1, 1)
                return -(soft * o.log() * factors).sum() / (rows * outer * inner)

            yield case(f"{name} soft", "nll", extents, probabilities, soft, mean_of_soft, class_weight=weight)


def log_cosh(output, target, reduction="mean"):
    """The logarithm of cosh of the difference, which PyTorch does not have: from the sum of exponentials."""
    difference = output - target
    losses = torch.logaddexp(difference, -difference) - math.log(2)
    return losses.mean() if reduction == "mean" else losses


def reduced(losses, reduction):
    return losses.mean() if reduction == "mean" else losses


def hinge(output, target, reduction="mean"):
    """For single scores, which PyTorch has with several classes only."""
    return reduced(torch.clamp(1 - output * target, min=0), reduction)


def squared_hinge(output, target, reduction="mean"):
    """Likewise."""
    return reduced(torch.clamp(1 - output * target, min=0) ** 2, reduction)


def quantile(output, target, reduction="mean"):
    """The loss of Koenker and Bassett 1978, which PyTorch does not have."""
    difference = target - output
    return reduced(torch.maximum(0.3 * difference, -0.7 * difference), reduction)


def binary_focal(output, target, reduction="mean"):
    """Equation 4 of Lin et al. 2017, as torchvision's `sigmoid_focal_loss` without alpha has it."""
    p = torch.sigmoid(output)
    losses = F.binary_cross_entropy_with_logits(output, target, reduction="none")
    yes, no = (1 - p) ** 1.5, p**1.5
    # For targets between 0 and 1 each of the two parts has a factor of its own.
    parts = target * yes * -F.logsigmoid(output) + (1 - target) * no * -F.logsigmoid(-output)
    assert torch.allclose(
        parts[(target == 0) | (target == 1)],
        (losses * torch.where(target > 0.5, yes, no))[(target == 0) | (target == 1)],
    )
    return reduced(parts, reduction)


TARGETS = {
    "binary_cross_entropy": lambda extents: rounded(torch.rand(extents)),
    "binary_focal": lambda extents: rounded(torch.rand(extents)),
    "hinge": lambda extents: 2.0 * torch.randint(0, 2, extents) - 1,
    "squared_hinge": lambda extents: 2.0 * torch.randint(0, 2, extents) - 1,
    "poisson": lambda extents: torch.poisson(2 * torch.rand(extents)),
}
SETTINGS = {"huber": {"delta": 0.7}, "quantile": {"quantile": 0.3}, "binary_focal": {"gamma": 1.5}}


def element_wise():
    functions = {
        "mse": F.mse_loss,
        "mae": F.l1_loss,
        "huber": lambda o, t, **k: F.huber_loss(o, t, delta=0.7, **k),
        "binary_cross_entropy": F.binary_cross_entropy_with_logits,
        "log_cosh": log_cosh,
        "hinge": hinge,
        "squared_hinge": squared_hinge,
        "poisson": lambda o, t, **k: F.poisson_nll_loss(o, t, log_input=True, **k),
        "quantile": quantile,
        "binary_focal": binary_focal,
    }
    for function, call in functions.items():
        for layout, extents in LAYOUTS.items():
            if layout not in ("wide rows", "wide images", "one class"):
                continue
            output = rounded(torch.randn(extents) * 2)
            target = TARGETS.get(function, lambda extents: rounded(torch.randn(extents)))(extents)
            if "hinge" not in function and function != "quantile":
                output.reshape(-1)[0] = target.reshape(-1)[0]
            sample_weight = rounded(torch.rand(extents[0]) + 0.1)
            options = SETTINGS.get(function, {})
            yield case(
                f"{function} {layout}",
                function,
                extents,
                output,
                target,
                lambda o: call(o, target),
                **options,
            )

            def weighted(o):
                losses = call(o, target, reduction="none")
                return weighted_mean(losses, sample_weight, torch.ones_like(losses))

            name = f"{function} {layout} sample weights"
            yield case(
                name, function, extents, output, target, weighted, sample_weight=sample_weight, **options
            )
    extents = (2, 1, 4, 1)
    output = torch.tensor([1000.0, -1000.0, 700.0, -700.0, 40.0, -40.0, 0.0, 1e-9]).reshape(extents)
    target = torch.tensor([1.0, 0.0, 0.0, 1.0, 0.5, 0.5, 0.25, 1.0]).reshape(extents)
    yield case(
        "binary_cross_entropy huge logits",
        "binary_cross_entropy",
        extents,
        output,
        target,
        lambda o: F.binary_cross_entropy_with_logits(o, target),
    )


cases = [*cross_entropies(), *negative_log_likelihoods(), *element_wise()]
lines = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in cases)
path = Path(__file__).with_suffix(".json")
path.write_text(f'{{"pytorch":"{torch.__version__}","cases":[\n{lines}\n]}}\n')
print(f"{len(cases)} cases, {path.stat().st_size} bytes: {path}")
