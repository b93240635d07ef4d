"""Targets and weights of outputs with names whose extents are those of samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom._settings.suggestions import unknown
from loom._typing import Foreign, TargetKind
from loom.convert import DividedWeights, as_numpy, as_real_array
from loom.data import Classes
from loom.data.labels import KINDS, as_names
from loom.data.sample_targets import filled_steps, targets_of_steps
from loom.engine.ports import Ports, by_name
from loom.engine.sizing import Sizing
from loom.errors import DataError

__all__ = ["OutputTargets"]


class OutputTargets:
    """What the named outputs of samples are compared with, of which some have the samples' extents.

    A sample counts the same in each output, however many steps it has: its loss is the mean over those that
    are real, which weights of steps see to.

    Args:
        ports: The network's names.
        sizing: What its samples go through.
        samples: The samples.
        target: By output one for each sample; of an output with steps one for each of them.
        weight: (rows,) how much each sample counts, in the mean over samples, too; or by output, and there
            for each step, of a mean in which all samples count the same; equally where None.
        kinds: What the loss of each output takes.
        labels: What the classes of outputs are called.

    Raises:
        DataError: There are more or fewer targets or weights than samples.
        ShapeError: A target has other steps than its sample.
        ConfigError: A name is unknown.
    """

    def __init__(
        self,
        ports: Ports,
        sizing: Sizing,
        samples: Any,  # noqa: ANN401 - of one input or of several
        target: Foreign,
        weight: Foreign,
        *,
        kinds: Mapping[str, TargetKind],
        labels: Mapping[str, Classes],
    ) -> None:
        self._ports, self._sizing, self._kinds, self._labels = ports, sizing, kinds, labels
        self._rows = len(samples)
        self._counts = {
            name: [samples.of_length(length).length(number) for number in range(self._rows)]
            for name, length in sizing.output_lengths.items()
            if length is not None
        }
        self._opened = {name for name, shape in sizing.named_output_shapes.items() if None in shape}
        given = by_name("target", target, ports.output_names)
        self._targets = {name: self._of_output(name, given[name], samples) for name in ports.output_names}
        for name, part in self._targets.items():
            if len(part) != self._rows:
                raise DataError(
                    f"data: input has {self._rows} samples but there are {len(part)} targets of output "
                    f'"{name}"'
                )
        self._of_samples: NDArray[Any] | None = None
        self._weights = self._weights_of(weight, samples)

    def __len__(self) -> int:
        return self._rows

    def _of_output(self, name: str, given: Foreign, samples: Any) -> list[NDArray[Any]] | NDArray[Any]:  # noqa: ANN401
        what, known = f'output "{name}"', self._labels.get(name)
        length = self._sizing.output_lengths[name]
        if length is not None:
            return targets_of_steps(given, samples.of_length(length), known, what)
        if name not in self._opened:
            return as_names(given)
        found = [as_names(each) for each in given]
        if known is None:
            return found
        named = f"TOU{KINDS[known.kind]}"
        return [known.indices(each, what) if each.dtype.kind in named else each for each in found]

    def _weights_of(self, weight: Foreign, samples: Any) -> dict[str, list[NDArray[Any]] | NDArray[Any]]:  # noqa: ANN401
        if weight is None:
            return {}
        if not isinstance(weight, Mapping):
            self._of_samples = self._of_rows(weight, "data: weight")
            return dict.fromkeys(self._ports.output_names, self._of_samples)
        found: dict[str, list[NDArray[Any]] | NDArray[Any]] = {}
        for name, given in weight.items():
            if name not in self._ports.output_names:
                raise unknown("weight: output", name, self._ports.output_names)
            what = f'weight of output "{name}"'
            length = self._sizing.output_lengths[name]
            each = given[0] if hasattr(given, "__len__") and len(given) else 0.0
            if length is None or np.ndim(each) == 0:
                found[name] = self._of_rows(given, what)
            else:
                found[name] = targets_of_steps(given, samples.of_length(length), None, what)
        return found

    def _of_rows(self, given: Foreign, what: str) -> NDArray[Any]:
        array = as_numpy(given, what=what)
        if array.shape != (self._rows,):
            steps = "; of an output with steps also one for each step, in a list of arrays"
            raise DataError(f"{what} must be ({self._rows},), one for each sample, got {array.shape}{steps}")
        return array

    def contents(self) -> list[NDArray[Any]]:
        """Returns all that tells these from others."""
        found: list[NDArray[Any]] = []
        for part in (*self._targets.values(), *self._weights.values()):
            found += part if isinstance(part, list) else [part]
        return found

    def batch(self, chosen: Sequence[int], dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Returns targets and weights of samples that have just been put into rows."""
        picked, steps = list(chosen), self._sizing.steps()
        parts: dict[str, Any] = {}
        for name, part in self._targets.items():
            length = self._sizing.output_lengths[name]
            if not isinstance(part, list):
                parts[name] = part[picked]
            elif length is None:
                parts[name] = np.stack([part[number] for number in picked])
            else:
                parts[name] = filled_steps([part[number] for number in picked], steps[length])
        # Those of steps and places are class indices already.
        labels = {name: known for name, known in self._labels.items() if name not in self._opened}
        target = self._ports.pack_targets(parts, self._kinds, self._sizing.precision, labels=labels)
        if not self._counts and not self._weights:
            return target, None
        columns = [self._columns(name, picked, steps) for name in self._ports.output_names]
        weights = as_real_array(np.concatenate(columns, axis=1), self._sizing.precision, what="weight")
        if self._of_samples is None:
            return target, weights
        divided: DividedWeights = weights.view(DividedWeights)
        divided.divisor = float(self._of_samples[picked].sum(dtype=np.float64))
        return target, divided

    def _columns(self, name: str, picked: list[int], steps: tuple[int, ...]) -> NDArray[np.float64]:
        """Returns the weights of an output: (rows, 1), or (rows, steps) where it has some."""
        given = self._weights.get(name)
        if name not in self._counts:
            return np.ones((len(picked), 1)) if given is None else np.asarray(given)[picked][:, None]
        room = steps[self._sizing.output_lengths[name] or 0]
        found = np.zeros((len(picked), room))
        for row, number in zip(found, picked, strict=True):
            count = self._counts[name][number]
            # The engine divides by all steps that there is room for.
            row[:count] = room / count
            if given is not None:
                row[:count] *= given[number]
        return found
