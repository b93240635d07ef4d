"""Images that are other ones in each epoch, drawn so that it does not matter who makes them, or when.

The geometry is done on whatever type images have, colours on real numbers. Everything that is drawn for an
image comes from a counter: seed, epoch and the image's number, see `loom.data.philox`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from loom._settings.checks import real, whole
from loom._settings.encoding import Plain
from loom._typing import ArrayLike
from loom.convert import as_numpy
from loom.data.philox import uniforms
from loom.errors import ConfigError, DTypeError, ShapeError

__all__ = ["Augment"]

Images = NDArray[Any]

# The place of each draw among those of an image, so that what is added disturbs nothing.
_FLIP, _FLIP_VERTICAL, _SHIFT_Y, _SHIFT_X, _ANGLE = 0, 1, 2, 3, 4
_BRIGHTNESS, _CONTRAST, _SATURATION = 5, 6, 7
_ERASES, _AREA, _ASPECT, _TOP, _LEFT = 8, 9, 10, 11, 12
_MIXES, _CENTRE_Y, _CENTRE_X = 13, 14, 15
_SHARES, _TRIES = 16, 24
"""Where the draws of shares begin, in pairs, of which the first that is accepted counts; and how many there
are."""
_NEAR = 1 << 16
"""How many numbers are worked on at a time."""
_DRAWS = _SHARES + 2 * _TRIES


@dataclass(frozen=True)
class Augment(Plain):
    """What is done to images while a network learns from them, other in each epoch.

    Called with images it gives them as they would be in an epoch; `image_folder` and `stream` take it as
    `augment=`. It does the steps in this order. What is drawn for an image depends on the seed, the epoch and
    the image's number alone, so that workers and a run that goes on give the same bits.

    Args:
        flip: How likely an image is mirrored, left to right.
        flip_vertical: How likely it is mirrored, top to bottom.
        crop: By how many pixels at most it is moved, up or down and left or right, with zeros where it was:
            what others call padding and cropping.
        rotate: By how many degrees at most it is turned, to either side, around its middle; between pixels it
            is interpolated, and zeros come in from outside.
        brightness: Colours are multiplied by 1 - brightness to 1 + brightness.
        contrast: The distance from the image's mean grey is multiplied by 1 - contrast to 1 + contrast.
        saturation: The same with the distance of colours from their grey; does nothing to grey images.
        erase: How likely a rectangle of 2 to 33 per cent of it becomes zeros (Zhong et al. 2020).
        mixup: The alpha of Beta(alpha, alpha), from which the share is drawn by which an image and its target
            are mixed with the next ones of the batch (Zhang et al. 2018); none are where 0.
        cutmix: The same where a rectangle is taken from the next image instead (Yun et al. 2019). With both,
            each image has one of them.

    Raises:
        ConfigError: A number is out of range.

    Examples:
        >>> augment = loom.data.Augment(flip=0.5, crop=2, brightness=0.2)
        >>> images = np.ones((4, 3, 8, 8), np.float32)
        >>> augment(images, epoch=3).shape
        (4, 3, 8, 8)
        >>> bool((augment(images, epoch=3)[2:] == augment(images[2:], epoch=3, samples=[2, 3])).all())
        True
    """

    flip: float = 0.0
    flip_vertical: float = 0.0
    crop: int = 0
    rotate: float = 0.0
    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    erase: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0

    def __post_init__(self) -> None:
        whole("Augment", "crop", self.crop, least=0, most=1 << 16)
        real("Augment", "rotate", self.rotate, least=0.0, most=180.0)
        for each in fields(self):
            if each.name not in ("crop", "rotate"):
                real("Augment", each.name, getattr(self, each.name), least=0.0, most=1.0)

    def __call__(
        self, images: ArrayLike, *, epoch: int = 0, samples: ArrayLike | None = None, seed: int = 0
    ) -> Images:
        """Returns images as they are in an epoch; `mixup` and `cutmix` need targets and are left out.

        Args:
            images: (rows, channels, height, width), of bytes from 0 to 255, or real numbers from 0 to 1.
            epoch: The epoch's number.
            samples: (rows,) the images' numbers; 0, 1, ... where None.
            seed: What is drawn from.

        Returns:
            The same shape and type.

        Raises:
            ShapeError: They have other axes.
            DTypeError: They are neither bytes nor real numbers.
        """
        x = _checked(as_numpy(images, what="Augment: images"))
        numbers = np.arange(len(x)) if samples is None else np.asarray(samples)
        if numbers.shape != (len(x),):
            raise ShapeError(
                f"Augment: samples must be ({len(x)},), a number for each image, got {numbers.shape}"
            )
        draws = uniforms(seed, epoch, numbers, _DRAWS)
        moved = self._geometry(x, draws)
        if not self._colours:
            return moved
        coloured = self._coloured(moved, draws)
        if x.dtype != np.uint8:
            return coloured
        back: Images = np.rint(coloured * np.float32(255.0)).astype(np.uint8)
        return back

    def batch(
        self,
        images: Images,
        target: NDArray[Any],
        *,
        epoch: int,
        samples: NDArray[Any],
        seed: int,
        classes: int | None = None,
        to_one: bool = False,
    ) -> tuple[Images, NDArray[Any]]:
        """Returns images and targets as training reads them: real numbers, mixed where that is wanted.

        Args:
            images: (rows, channels, height, width), of bytes, or real numbers from 0 to 1.
            target: (rows,) class indices, or (rows, ...) real numbers.
            epoch: The epoch's number.
            samples: (rows,) the images' numbers.
            seed: What is drawn from.
            classes: How many classes there are; class indices that are mixed become rows of so many shares.
            to_one: Whether bytes become real numbers from 0 to 1, rather than from 0 to 255.

        Returns:
            The images, and the targets.

        Raises:
            ConfigError: Class indices are to be mixed, and nobody says how many classes there are.
        """
        x = _checked(images)
        draws = uniforms(seed, epoch, samples, _DRAWS)
        x = self._coloured(self._geometry(x, draws), draws)
        if images.dtype == np.uint8 and not to_one:
            x *= np.float32(255.0)
        if not (self.mixup or self.cutmix):
            return x, target
        return self._mixed(x, _shares(target, classes), draws)

    @property
    def _colours(self) -> bool:
        return bool(self.brightness or self.contrast or self.saturation or self.erase)

    def _geometry(self, x: Images, draws: NDArray[np.float32]) -> Images:
        mirrored, upside = draws[:, _FLIP] < self.flip, draws[:, _FLIP_VERTICAL] < self.flip_vertical
        reach = 2 * self.crop + 1
        down = (draws[:, _SHIFT_Y] * reach).astype(int) - self.crop
        right = (draws[:, _SHIFT_X] * reach).astype(int) - self.crop
        changed = mirrored | upside | (down != 0) | (right != 0)
        if changed.any():
            # In one pass over those that change.
            moved = np.empty_like(x)
            for row, image in enumerate(x):
                if not changed[row]:
                    moved[row] = image
                    continue
                seen = image[:, :: -1 if upside[row] else 1, :: -1 if mirrored[row] else 1]
                _shift(seen, moved[row], int(down[row]), int(right[row]))
            x = moved
        return (
            _turned(x, (draws[:, _ANGLE] * 2 - 1) * np.float32(math.radians(self.rotate)))
            if self.rotate
            else x
        )

    def _coloured(self, x: Images, draws: NDArray[np.float32]) -> Images:
        """Returns images from 0 to 1 with other colours, and with what is erased."""
        numbers = np.dtype(np.float32) if x.dtype == np.uint8 else x.dtype
        found = np.empty(x.shape, numbers)
        # As much at a time as stays in a processor's cache.
        step = max(_NEAR // max(int(np.prod(x.shape[1:])), 1), 1)
        for first in range(0, len(x), step):
            part, some = found[first : first + step], draws[first : first + step]
            if x.dtype == np.uint8:
                np.multiply(x[first : first + step], np.float32(1.0 / 255.0), out=part)
            else:
                part[:] = x[first : first + step]
            if self.brightness or self.contrast or self.saturation:
                self._recolour(part, some)
        if self.erase:
            self._erase(found, draws)
        return found

    def _recolour(self, x: Images, draws: NDArray[np.float32]) -> None:
        """Changes colours in place.

        With b, c and s the factors of brightness, contrast and saturation, all three together are
        b c s x + b c (1 - s) grey + b (1 - c) mean, where the mean is that of the grey.
        """

        def factors(place: int, most: float) -> Images:
            found: Images = 1 + (draws[:, place] * 2 - 1) * np.float32(most)
            return found.astype(x.dtype)[:, None, None, None]

        bright, contrast = factors(_BRIGHTNESS, self.brightness), factors(_CONTRAST, self.contrast)
        colourful = factors(_SATURATION, self.saturation if x.shape[1] == 3 else 0.0)
        if self.contrast or self.saturation:
            grey = _grey(x)
            mean = grey.reshape(len(x), -1).mean(axis=1, dtype=x.dtype)[:, None, None, None]
            grey = grey * (bright * contrast * (1 - colourful))
            grey += mean * (bright * (1 - contrast))
            x *= bright * contrast * colourful
            x += grey
        else:
            x *= bright
        np.clip(x, 0, 1, out=x)

    def _erase(self, x: Images, draws: NDArray[np.float32]) -> None:
        """Makes rectangles zeros, in place."""
        height, width = x.shape[2:]
        area = (0.02 + 0.31 * draws[:, _AREA]) * np.float32(height * width)
        aspect = np.exp((draws[:, _ASPECT] * 2 - 1) * np.float32(math.log(3.3)))
        tall = np.clip(np.rint(np.sqrt(area * aspect)), 1, height).astype(int)
        wide = np.clip(np.rint(np.sqrt(area / aspect)), 1, width).astype(int)
        top = (draws[:, _TOP] * (height - tall + 1)).astype(int)
        left = (draws[:, _LEFT] * (width - wide + 1)).astype(int)
        for row in np.flatnonzero(draws[:, _ERASES] < self.erase):
            x[row, :, top[row] : top[row] + tall[row], left[row] : left[row] + wide[row]] = 0

    def _mixed(
        self, x: Images, target: NDArray[Any], draws: NDArray[np.float32]
    ) -> tuple[Images, NDArray[Any]]:
        other, others = np.roll(x, -1, axis=0), np.roll(target, -1, axis=0)
        half = 0.5 if self.mixup else 1.0
        cuts = draws[:, _MIXES] < (half if self.cutmix else 0.0)
        alpha = np.where(cuts, self.cutmix, self.mixup)
        share = _beta(alpha, draws[:, _SHARES:]).astype(x.dtype)
        height, width = x.shape[2:]
        mixed = np.empty_like(x)
        for row in range(len(x)):
            if not cuts[row]:
                np.multiply(x[row], share[row], out=mixed[row])
                mixed[row] += other[row] * (1 - share[row])
                continue
            side = math.sqrt(max(1.0 - float(share[row]), 0.0))
            tall, wide = side * height / 2, side * width / 2
            middle_y, middle_x = float(draws[row, _CENTRE_Y]) * height, float(draws[row, _CENTRE_X]) * width
            top, bottom = max(int(middle_y - tall), 0), min(int(middle_y + tall), height)
            left, right = max(int(middle_x - wide), 0), min(int(middle_x + wide), width)
            mixed[row] = x[row]
            mixed[row, :, top:bottom, left:right] = other[row, :, top:bottom, left:right]
            # As much of the target as there is of the image.
            share[row] = 1 - (bottom - top) * (right - left) / (height * width)
        kept = share.astype(target.dtype).reshape(-1, *(1,) * (target.ndim - 1))
        return mixed, target * kept + others * (1 - kept)


def _checked(x: Images) -> Images:
    if x.ndim != 4:
        raise ShapeError(f"Augment: images are (rows, channels, height, width), got shape {x.shape}")
    if x.dtype != np.uint8 and x.dtype.kind != "f":
        raise DTypeError(
            f"Augment: images are bytes from 0 to 255 or real numbers from 0 to 1, got {x.dtype}"
        )
    return x


def _shift(image: Images, out: Images, down: int, right: int) -> None:
    """Writes an image that is moved, with zeros where it was."""
    height, width = image.shape[1:]
    down, right = max(-height, min(down, height)), max(-width, min(right, width))
    top, left = max(down, 0), max(right, 0)
    bottom, end = height + min(down, 0), width + min(right, 0)
    out[:, :top] = 0
    out[:, bottom:] = 0
    out[:, top:bottom, :left] = 0
    out[:, top:bottom, end:] = 0
    out[:, top:bottom, left:end] = image[:, top - down : bottom - down, left - right : end - right]


def _turned(x: Images, angles: NDArray[np.float32]) -> Images:
    """Returns images turned around their middles, interpolated between four pixels.

    What lies outside is zeros: the image is padded by a pixel of them, where all that is farther away lands.
    """
    rows, channels, height, width = x.shape
    padded = np.zeros((rows, channels, height + 3, width + 3), x.dtype)
    padded[:, :, 1:-2, 1:-2] = x
    stride = width + 3
    down = np.arange(height, dtype=np.float32)[:, None] - np.float32((height - 1) / 2)
    right = np.arange(width, dtype=np.float32)[None, :] - np.float32((width - 1) / 2)
    turned = np.empty((rows, channels, height * width), x.dtype)
    for row in range(rows):
        sine, cosine = np.float32(math.sin(angles[row])), np.float32(math.cos(angles[row]))
        y = np.clip(cosine * down + sine * right + np.float32((height - 1) / 2), -1, height) + 1
        z = np.clip(cosine * right - sine * down + np.float32((width - 1) / 2), -1, width) + 1
        top, left = y.astype(np.int32), z.astype(np.int32)
        below, beside = (y - top).ravel(), (z - left).ravel()
        place = (top * stride + left).ravel()
        for channel in range(channels):
            flat = padded[row, channel].ravel()
            first, second = flat[place], flat[place + 1]
            third, fourth = flat[place + stride], flat[place + stride + 1]
            if flat.dtype == np.uint8:
                first, second, third, fourth = (
                    each.astype(np.float32) for each in (first, second, third, fourth)
                )
            upper = first + (second - first) * beside
            lower = third + (fourth - third) * beside
            found = upper + (lower - upper) * below
            turned[row, channel] = np.rint(found) if x.dtype == np.uint8 else found
    return turned.reshape(x.shape)


def _grey(x: Images) -> Images:
    """Returns (rows, 1, height, width): how bright colours are, by ITU-R 601."""
    grey: Images
    if x.shape[1] != 3:
        grey = x.mean(axis=1, keepdims=True, dtype=x.dtype)
        return grey
    grey = x[:, :1] * x.dtype.type(0.299)
    grey += x[:, 1:2] * x.dtype.type(0.587)
    grey += x[:, 2:] * x.dtype.type(0.114)
    return grey


def _shares(target: NDArray[Any], classes: int | None) -> NDArray[Any]:
    """Returns targets that can be mixed: rows of shares for class indices."""
    if target.dtype.kind == "f":
        return target
    if classes is None:
        raise ConfigError(
            "Augment: mixup and cutmix make shares of classes, and nobody says how many there are; name "
            "them, classes=[...], or give rows of zeros and ones as targets"
        )
    found: NDArray[np.float32] = np.eye(classes, dtype=np.float32)[target]
    return found


def _beta(alpha: NDArray[np.float64], draws: NDArray[np.float32]) -> NDArray[np.float64]:
    """Draws from Beta(alpha, alpha), alpha at most 1, by Joehnk's way: half the pairs or more are accepted.

    Args:
        alpha: (rows,).
        draws: (rows, 2 * tries); the first pair that is accepted counts, and 1/2 where none is.
    """
    # Zero to the power of something is no share.
    power = np.log(np.maximum(draws.astype(np.float64), 2.0**-25)) / np.maximum(alpha, 1e-6)[:, None]
    first, second = power[:, 0::2], power[:, 1::2]
    # In logarithms: for small alphas the powers themselves vanish.
    larger = np.maximum(first, second)
    total = larger + np.log1p(np.exp(np.minimum(first, second) - larger))
    accepted = total <= 0
    place = accepted.argmax(axis=1)
    rows = np.arange(len(draws))
    share = np.exp(first[rows, place] - total[rows, place])
    return cast("NDArray[np.float64]", np.where(accepted[rows, place], share, 0.5))
