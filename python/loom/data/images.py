"""Folders of images, a class in each sub-folder."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom._settings.calls import explained
from loom._settings.checks import ExtentsLike, choice, extents, file_path, items
from loom._settings.suggestions import shown
from loom._typing import Foreign
from loom.data.augmenting import Augment
from loom.data.loading import SampleLoader
from loom.data.splitting import split
from loom.errors import ConfigError, DataError, FileError
from loom.extras import require

__all__ = ["ImageFolder", "image_folder"]

_ENDINGS = frozenset([".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"])
_SMALL = 16 << 10
"""Below how many bytes a file is so quickly decoded that one worker at a time is faster than several."""
_MODES = {"grey": "L", "rgb": "RGB"}


class ImageFolder(SampleLoader):
    """Images in files, as batches; `image_folder` makes it.

    Args:
        files: The files.
        targets: (rows,) the class of each.
        classes: The names of the classes.
        size: (height, width) of all images; those of the first where None.
        colour: "grey" or "rgb"; what the first is where None.
        **settings: As for `Loader`.
    """

    _to_one = True

    def __init__(
        self,
        files: Sequence[Path],
        targets: NDArray[np.int64],
        classes: Sequence[str],
        size: tuple[int, int] | None,
        colour: str | None,
        **settings: Foreign,
    ) -> None:
        super().__init__("image_folder", len(files), **settings)
        self.files = list(files)
        self.targets = targets
        self.classes = tuple(classes)
        self._pillow = _pillow()
        if size is None or colour is None:
            with self._opened(self.files[0]) as first:
                size = size or (first.height, first.width)
                colour = colour or ("grey" if first.mode[0] in "1LI" else "rgb")
        self.size, self.colour = size, colour
        some = self.files[:: max(len(self.files) // 64, 1)]
        if sum(file.stat().st_size for file in some) < _SMALL * len(some):
            # Decoding these is mostly Python, and threads that take turns line by line lose half their time.
            self._turn = Lock()

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(channels, height, width): the network's `input_shape`."""
        return (1 if self.colour == "grey" else 3, *self.size)

    def _looks(self) -> list[str]:
        return [f"images {self.image_shape}"]

    def identity(self) -> dict[str, Any]:
        """Returns what tells this data from other data, as JSON: the files' names and sizes."""
        found = hashlib.sha256()
        for file, target in zip(self.files, self.targets.tolist(), strict=True):
            found.update(f"{target}/{file.name}/{file.stat().st_size}\n".encode())
        image = {"size": list(self.size), "colour": self.colour, "classes": list(self.classes or ())}
        return {**super().identity(), **image, "files": found.hexdigest()}

    def arrays(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Reads all images, as they are without augmentation.

        Returns:
            (rows, channels, height, width) from 0 to 1, and (rows,) classes: for data that fits into memory,
            which then is read once rather than in every epoch.
        """
        images, targets, _ = self._samples(np.arange(self.rows))
        return np.multiply(images, np.float32(1.0 / 255.0), dtype=np.float32), targets

    def split(
        self, fraction: float = 0.2, *, stratify: bool = True, seed: int = 0
    ) -> tuple[ImageFolder, ImageFolder]:
        """Splits the images into what is learned from and what is held out.

        Args:
            fraction: The share held out.
            stratify: Whether it is the same of every class.
            seed: What is drawn from.

        Returns:
            What is left for training; and what was held out, neither shuffled nor augmented.
        """
        places = np.arange(self.rows), self.targets
        kept, held = split(places, fraction, stratify=stratify, seed=seed)
        return self._part(kept[0], self.augment, shuffle=self.shuffle), self._part(
            held[0], None, shuffle=False
        )

    def _part(self, rows: NDArray[np.intp], augment: Augment | None, *, shuffle: bool) -> ImageFolder:
        return ImageFolder(
            [self.files[row] for row in rows.tolist()],
            self.targets[rows],
            self.classes or (),
            self.size,
            self.colour,
            batch_size=self.batch_size,
            shuffle=shuffle,
            seed=self.seed,
            workers=self.workers,
            prefetch=self.prefetch,
            augment=augment,
        )

    def _opened(self, file: Path) -> Foreign:
        try:
            return self._pillow.open(file)
        except (OSError, ValueError, SyntaxError, self._pillow.DecompressionBombError) as error:
            raise _broken(file, error) from error

    def _samples(self, rows: NDArray[np.intp]) -> tuple[Any, Any, Any]:
        images = np.empty((len(rows), *self.image_shape), np.uint8)
        for place, row in enumerate(rows.tolist()):
            self._read(self.files[row], images[place])
        return images, self.targets[rows], None

    def _read(self, file: Path, out: NDArray[np.uint8]) -> None:
        height, width = self.size
        mode = _MODES[self.colour]
        with self._opened(file) as image:
            try:
                if image.format == "JPEG" and (image.height >= 2 * height and image.width >= 2 * width):
                    # Decoded at a half, a quarter or an eighth of its size, which is all that is needed.
                    image.draft(mode, (width, height))
                found = image
                if image.mode.startswith("I"):
                    # Sixteen bits, whose upper half is what eight bits would be.
                    found = self._pillow.fromarray((np.asarray(image) >> 8).astype(np.uint8))
                if found.mode != mode:
                    found = (
                        found.convert("RGBA").convert(mode)
                        if "transparency" in found.info
                        else found.convert(mode)
                    )
                if found.size != (width, height):
                    found = found.resize((width, height), self._pillow.Resampling.BILINEAR)
                pixels = np.asarray(found)
            except (OSError, ValueError, SyntaxError, EOFError, self._pillow.DecompressionBombError) as error:
                raise _broken(file, error) from error
        out[:] = pixels if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


@explained()
def image_folder(
    path: str | os.PathLike[str],
    size: ExtentsLike | None = None,
    *,
    classes: Sequence[str] | None = None,
    colour: str | None = None,
    batch_size: int = 32,
    shuffle: bool = True,
    seed: int = 0,
    augment: Augment | None = None,
    workers: int = 0,
    prefetch: int = 2,
) -> ImageFolder:
    """Gives the images of a folder in batches, a class in each of its sub-folders.

    What comes out is (rows, channels, height, width) from 0 to 1 and the classes' indices; the network that
    learns from it remembers the classes' names. The batches are the same ones whatever the number of workers,
    and a run that is kept in a folder goes on where it was. Needs the extra "images".

    Args:
        path: The folder. Files in sub-folders of the sub-folders count, too; files that are no images by
            their names' endings (bmp, gif, jpeg, jpg, pgm, png, ppm, tif, tiff, webp) do not.
        size: The height and width that all images are resized to (bilinear, not keeping proportions), as one
            number or two; the first image's where None.
        classes: The sub-folders that count, in the order of the outputs; all, sorted, where None.
        colour: "grey" for one channel, "rgb" for three; what the first image has where None.
        batch_size: How many images a batch has.
        shuffle: Whether the order is another one in each epoch.
        seed: What the order and the augmentation are drawn from.
        augment: What is done to images, other in each epoch.
        workers: How many threads read files ahead, while the network learns; none where 0.
        prefetch: How many batches lie ready for each worker.

    Returns:
        Batches, for `loom.train` and the like.

    Raises:
        FileError: The folder is not there.
        DataError: It has no images in sub-folders; or, while they are read, a file is broken, which is named.
        ConfigError: A setting is out of range, or a class has no sub-folder.
        MissingExtraError: Pillow is not installed.

    Examples:
        >>> data = loom.data.image_folder("photos", 64, augment=loom.data.Augment(flip=0.5))  # doctest: +SKIP
        >>> train, held_out = data.split(0.2)  # doctest: +SKIP
    """
    folder = file_path("image_folder", path)
    if not folder.is_dir():
        raise FileError(errno.ENOTDIR, "not a folder of images", str(folder))
    there = sorted(
        entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith(".")
    )
    names = there if classes is None else _named(classes, there, folder)
    files: list[Path] = []
    targets: list[int] = []
    for place, name in enumerate(names):
        found = _images(folder / name)
        if not found:
            raise DataError(
                f"image_folder: {folder / name} has no images; leave that class out: classes=[...]"
            )
        files += found
        targets += [place] * len(found)
    if not files:
        raise DataError(f"image_folder: {folder} has no sub-folders, one for each class, with images in them")
    both = None if size is None else extents("image_folder", "size", size, axes=2, least=1, most=1 << 16)
    return ImageFolder(
        files,
        np.array(targets, np.int64),
        names,
        None if both is None else (both[0], both[1]),
        None if colour is None else choice("image_folder", "colour", colour, tuple(_MODES)),
        batch_size=batch_size,
        shuffle=shuffle,
        seed=seed,
        workers=workers,
        prefetch=prefetch,
        augment=augment,
    )


def _named(classes: object, there: Sequence[str], folder: Path) -> list[str]:
    listed = items(classes)
    if listed is None or not listed or len(set(listed)) < len(listed):
        raise ConfigError(f"image_folder: classes is a list of sub-folders, got {shown(classes)}")
    absent = [name for name in listed if name not in there]
    if absent:
        known = ", ".join(there) or "none"
        raise ConfigError(f"image_folder: {folder} has no sub-folder {shown(absent[0])}; there are {known}")
    return [str(name) for name in listed]


def _images(folder: Path) -> list[Path]:
    return sorted(
        Path(parent, name)
        for parent, _, names in os.walk(folder)
        for name in names
        if Path(name).suffix.lower() in _ENDINGS and not name.startswith(".")
    )


def _pillow() -> ModuleType:
    return require("PIL.Image", extra="images", purpose="loom.data.image_folder")


def _broken(file: Path, error: Exception) -> DataError:
    return DataError(f"{file} cannot be read as an image: {error}; mend it or take it out of the folder")
