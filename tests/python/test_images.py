"""Folders of images, and what is done to images while a network learns from them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loom
from loom import nn
from loom.data import Augment, TrainingBatch, image_folder
from loom.data.loading import Loader
from loom.data.philox import philox4x32, uniforms

Image = pytest.importorskip("PIL.Image")
ALL = Augment(
    flip=0.5,
    flip_vertical=0.3,
    crop=2,
    rotate=20,
    brightness=0.3,
    contrast=0.3,
    saturation=0.3,
    erase=0.4,
    mixup=0.4,
    cutmix=1.0,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes that differ in which half is bright, with a file that is none of them."""
    root = tmp_path_factory.mktemp("images")
    draw = np.random.default_rng(0)
    for place, name in enumerate(["left", "right"]):
        (root / name / "deep").mkdir(parents=True)
        for number in range(21):
            pixels = draw.integers(0, 120, (10, 12, 3)).astype(np.uint8)
            pixels[:, 6 * place : 6 * place + 6] += 120
            inner = root / name / ("deep" if number % 3 == 0 else "")
            Image.fromarray(pixels).save(inner / f"{number:02}.{'jpg' if number == 5 else 'png'}", quality=95)
        (root / name / "notes.txt").write_text("none")
    return root


def test_images_are_what_pillow_reads(folder: Path) -> None:
    data = image_folder(folder, shuffle=False, batch_size=10)
    assert repr(data).startswith(f"ImageFolder({data.rows} rows, images {data.image_shape}, 2 classes (")
    assert (data.classes, data.image_shape, data.rows, len(data)) == (("left", "right"), (3, 10, 12), 42, 5)
    assert data.files == sorted(data.files)
    batches = list(data)
    assert [len(np.asarray(batch.input)) for batch in batches] == [10, 10, 10, 10, 2]
    x = np.concatenate([np.asarray(batch.input) for batch in batches])
    expected = np.stack([np.asarray(Image.open(file)) for file in data.files]).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(x, expected / 255, rtol=1e-6)
    assert x.dtype == np.float32
    np.testing.assert_array_equal(
        np.concatenate([np.asarray(b.target) for b in batches]), np.repeat([0, 1], 21)
    )
    images, targets = data.arrays()
    np.testing.assert_array_equal(images, x)
    np.testing.assert_array_equal(targets, data.targets)


def test_sizes_and_colours(folder: Path, tmp_path: Path) -> None:
    grey = image_folder(folder, (5, 7), colour="grey", shuffle=False, classes=["right", "left"])
    assert (grey.image_shape, grey.classes) == ((1, 5, 7), ("right", "left"))
    with Image.open(grey.files[0]) as image:
        expected = np.asarray(image.convert("L").resize((7, 5), Image.Resampling.BILINEAR))
    np.testing.assert_allclose(grey.arrays()[0][0, 0], expected / 255, rtol=1e-6)
    (tmp_path / "a").mkdir()
    levels = (np.arange(64, dtype=np.uint16) * 1000).reshape(8, 8)
    Image.fromarray(levels).save(tmp_path / "a" / "deep.png")
    Image.fromarray((levels >> 8).astype(np.uint8)).save(tmp_path / "a" / "plain.png")
    deep, plain = image_folder(tmp_path).arrays()[0]
    np.testing.assert_array_equal(deep, plain)


def test_large_photographs_are_decoded_small(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    ramp = np.linspace(0, 255, 256, dtype=np.uint8)
    Image.fromarray(np.broadcast_to(ramp, (256, 256)).copy()).save(tmp_path / "a" / "0.jpg", quality=95)
    found = image_folder(tmp_path, 32).arrays()[0][0, 0]
    np.testing.assert_allclose(found, np.broadcast_to(np.linspace(0, 1, 32), (32, 32)), atol=0.03)


def test_each_epoch_has_an_order_of_its_own(folder: Path) -> None:
    def order(epoch: int, seed: int = 0) -> list[int]:
        data = image_folder(folder, batch_size=8, seed=seed)
        data.set_epoch(epoch)
        return [int(value) for batch in data for value in np.asarray(batch.target)]

    assert order(0) == order(0)
    assert order(0) != order(1)
    assert order(0) != order(0, seed=1)


def test_splits_of_folders(folder: Path) -> None:
    kept, held = image_folder(folder, augment=ALL).split(0.2, seed=3)
    assert (kept.rows, held.rows, held.augment, held.shuffle) == (34, 8, None, False)
    assert not set(kept.files) & set(held.files)
    assert np.bincount(held.targets).tolist() == [4, 4]


def test_broken_files_are_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    whole = next((folder / "left").glob("*.png")).read_bytes()
    for content, message in (
        (whole[: len(whole) // 2], "truncated|broken"),
        (b"no image at all", "cannot identify"),
    ):
        for number in range(3):
            (tmp_path / "a" / f"{number}.png").write_bytes(whole)
        (tmp_path / "a" / "bad.png").write_bytes(content)
        for workers in (0, 2):
            with pytest.raises(loom.DataError, match=rf"bad\.png cannot be read as an image: .*({message})"):
                list(image_folder(tmp_path, batch_size=1, workers=workers))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"path": "nowhere"}, "not a folder of images"),
        ({"classes": ["up"]}, "no sub-folder 'up'; there are left, right"),
        ({"classes": ["left", "left"]}, "classes is a list of sub-folders"),
        ({"size": 0}, "size must be a positive whole number"),
        ({"colour": "blue"}, 'unknown image_folder colour "blue"'),
        ({"workers": -1}, "workers must be"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"augment": {"flip": 0.5}}, r"augment is a loom\.data\.Augment"),
    ],
)
def test_wrong_settings_are_refused(folder: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(loom.LoomError, match=message):
        image_folder(**{"path": folder, **settings})


def test_folders_without_images_are_refused(tmp_path: Path) -> None:
    with pytest.raises(loom.DataError, match="no sub-folders"):
        image_folder(tmp_path)
    (tmp_path / "a").mkdir()
    with pytest.raises(loom.DataError, match="a has no images"):
        image_folder(tmp_path)


class Breaks(loom.Callback):
    """Ends a run as Ctrl-C does, in the middle of an epoch."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


def network(data: Any) -> loom.Network:
    layers = [nn.Conv2D(4, kernel_size=3, activation="relu"), nn.Flatten(), nn.Dropout(0.2), nn.Dense(2)]
    return loom.Sequential(layers, input_shape=data.image_shape, seed=0)


def trained(folder: Path, workers: int, run: Path | None = None, breaks: tuple[int, ...] = ()) -> bytes:
    """The weights' bits after three epochs; a run that is kept goes on after each of the breaks."""
    keep = None if run is None else loom.RunFolder(run, every_steps=1, background=False)
    for steps in (*breaks, None):
        data = image_folder(folder, batch_size=8, seed=5, augment=ALL, workers=workers)
        net = network(data)
        hooks = [] if steps is None else [Breaks(steps)]
        result = net.fit(data, epochs=3, learning_rate=0.01, verbose=False, run=keep, callbacks=hooks)
        assert result.interrupted == (steps is not None)
    return b"".join(value.tobytes() for value in net.state_dict().values())


def test_workers_and_interruptions_change_no_bit(folder: Path, tmp_path: Path) -> None:
    expected = trained(folder, 0)
    for workers in (1, 4):
        assert trained(folder, workers) == expected, workers
    for workers, breaks in ((0, (3,)), (1, (6, 1)), (4, (2, 7))):
        assert trained(folder, workers, tmp_path / f"run-{workers}", breaks) == expected, workers


class Waits(Loader):
    """A second batch that is not made before somebody says so."""

    def __init__(self) -> None:
        super().__init__("Waits", batch_size=1, shuffle=False, seed=0, workers=1)
        self.go, self.begun, self.told = threading.Event(), threading.Event(), queue.Queue[bool]()

    def _jobs(self, epoch: int, start: int) -> Iterator[Any]:
        batch = TrainingBatch(np.zeros((1, 2)), np.zeros(1))

        def second() -> TrainingBatch:
            self.begun.set()
            self.told.put(self.go.wait(20))
            return batch

        yield lambda: batch
        yield second


def test_who_leaves_a_loop_waits_for_no_batch() -> None:
    # The collector of garbage may be who leaves, in the midst of the start of a thread.
    data = Waits()
    batches = iter(data)
    next(batches)
    assert data.begun.wait(20)
    del batches
    data.go.set()
    assert data.told.get(timeout=20), "whoever left has waited until the batch was given up"


def test_a_kept_run_knows_its_images(folder: Path, tmp_path: Path) -> None:
    data = image_folder(folder, batch_size=8)
    network(data).fit(data, epochs=1, verbose=False, run=tmp_path / "run")
    other = image_folder(folder, batch_size=8, augment=Augment(flip=0.5))
    with pytest.raises(loom.ConfigError, match=r"data\.source\.augment"):
        network(other).fit(other, epochs=1, verbose=False, run=tmp_path / "run")


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_a_folder_is_learned_and_names_are_told(folder: Path, tmp_path: Path, device: str) -> None:
    if device == "gpu" and not any(each.name != "cpu" for each in loom.devices()):
        pytest.skip("no GPU")
    train, held = image_folder(folder, batch_size=8, augment=Augment(crop=1, brightness=0.1)).split(0.25)
    net = network(train)
    net.fit(train, epochs=6, learning_rate=0.02, validation_data=held, device=device, verbose=False)
    assert net.evaluate(held, metrics=["accuracy"])["accuracy"] == 1.0
    net.save(tmp_path / "halves.loom")
    names = loom.load(tmp_path / "halves.loom").predict_classes(held.arrays()[0])
    assert names.tolist() == [held.files[row].relative_to(folder).parts[0] for row in range(held.rows)]


# Augmentation


def test_random_numbers_are_those_of_the_reference() -> None:
    # Known answers of Random123, the authors' library.
    zeros = tuple(np.zeros(1, np.uint64) for _ in range(4))
    full = tuple(np.full(1, 0xFFFFFFFF, np.uint64) for _ in range(4))
    assert [hex(word) for word in philox4x32(zeros, (0, 0))[:, 0].tolist()] == [  # type: ignore[arg-type]
        "0x6627e8d5",
        "0xe169c58d",
        "0xbc57ac4c",
        "0x9b00dbd8",
    ]
    assert [hex(word) for word in philox4x32(full, (0xFFFFFFFF, 0xFFFFFFFF))[:, 0].tolist()] == [  # type: ignore[arg-type]
        "0x408f276d",
        "0x41c83b0e",
        "0xa20bc7c6",
        "0x6d5451fd",
    ]
    drawn = uniforms(1, 2, np.arange(4000), 6)
    assert (drawn >= 0).all()
    assert (drawn < 1).all()
    np.testing.assert_allclose(drawn.mean(axis=0), 0.5, atol=0.02)
    np.testing.assert_allclose(np.corrcoef(drawn.T), np.eye(6), atol=0.06)


@given(
    rows=st.integers(1, 9),
    channels=st.sampled_from([1, 3]),
    side=st.tuples(st.integers(3, 40), st.integers(3, 40)),
    epoch=st.integers(0, 3),
    bytes_=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_an_image_is_the_same_alone_and_among_others(
    rows: int, channels: int, side: tuple[int, int], epoch: int, bytes_: bool
) -> None:
    draw = np.random.default_rng(rows)
    images = draw.random((rows, channels, *side)).astype(np.float32)
    if bytes_:
        images = (images * 255).astype(np.uint8)
    whole = ALL(images, epoch=epoch, seed=7)
    assert (whole.dtype, whole.shape) == (images.dtype, images.shape)
    for row in range(rows):
        alone = ALL(images[row : row + 1], epoch=epoch, samples=[row], seed=7)
        np.testing.assert_array_equal(alone[0], whole[row])
    assert whole.min() >= 0
    assert whole.max() <= (255 if bytes_ else 1)


IMAGES = np.random.default_rng(0).random((400, 3, 12, 10)).astype(np.float32)


def test_flips_are_flips() -> None:
    found = Augment(flip=0.5)(IMAGES)
    same = (found == IMAGES).all(axis=(1, 2, 3))
    mirrored = (found == IMAGES[:, :, :, ::-1]).all(axis=(1, 2, 3))
    assert (same ^ mirrored).all()
    assert 0.4 < mirrored.mean() < 0.6
    np.testing.assert_array_equal(Augment(flip_vertical=1.0)(IMAGES), IMAGES[:, :, ::-1])


def test_crops_are_pieces_of_the_padded_image() -> None:
    found = Augment(crop=3)(IMAGES[:60])
    padded = np.pad(IMAGES[:60], ((0, 0), (0, 0), (3, 3), (3, 3)))
    places = set()
    for row in range(60):
        fits = [
            (top, left)
            for top in range(7)
            for left in range(7)
            if (padded[row, :, top : top + 12, left : left + 10] == found[row]).all()
        ]
        assert len(fits) == 1
        places.add(fits[0])
    assert len(places) > 25


def test_rotations_are_what_bilinear_sampling_gives() -> None:
    ndimage = pytest.importorskip("scipy.ndimage")
    augment = Augment(rotate=30)
    found = augment(IMAGES[:8], seed=3)
    angles = (uniforms(3, 0, np.arange(8), 5)[:, 4] * 2 - 1) * np.radians(30)
    for row in range(8):
        matrix = np.array(
            [[np.cos(angles[row]), np.sin(angles[row])], [-np.sin(angles[row]), np.cos(angles[row])]]
        )
        middle = np.array([11, 9]) / 2
        for channel in range(3):
            expected = ndimage.affine_transform(
                IMAGES[row, channel].astype(float),
                matrix,
                middle - matrix @ middle,
                order=1,
                mode="grid-constant",
            )
            np.testing.assert_allclose(found[row, channel], expected, atol=1e-4)


def test_colours_follow_their_formulas() -> None:
    augment = Augment(brightness=0.4, contrast=0.3, saturation=0.5)
    found = augment(IMAGES[:50], seed=2)
    draws = uniforms(2, 0, np.arange(50), 8).astype(float)
    bright, contrast, colour = (
        1 + (draws[:, 5 + place] * 2 - 1) * most for place, most in enumerate((0.4, 0.3, 0.5))
    )
    weights = np.array([0.299, 0.587, 0.114])[:, None, None]
    for row in range(50):
        x = IMAGES[row] * bright[row]
        mean = (x * weights).sum(axis=0).mean()
        x = mean + contrast[row] * (x - mean)
        grey = (x * weights).sum(axis=0)
        x = grey + colour[row] * (x - grey)
        np.testing.assert_allclose(found[row], np.clip(x, 0, 1), atol=1e-5)


def test_rectangles_are_erased() -> None:
    found = Augment(erase=0.5)(IMAGES)
    gone = (found == 0).all(axis=1)
    assert 0.4 < gone.any(axis=(1, 2)).mean() < 0.6
    for row in np.flatnonzero(gone.any(axis=(1, 2)))[:50]:
        rows, columns = np.flatnonzero(gone[row].any(axis=1)), np.flatnonzero(gone[row].any(axis=0))
        assert gone[row].sum() == len(rows) * len(columns)
        np.testing.assert_array_equal(found[row][:, ~gone[row]], IMAGES[row][:, ~gone[row]])


@pytest.mark.parametrize("alpha", [0.2, 1.0])
def test_mixtures_are_those_of_beta(alpha: float) -> None:
    stats = pytest.importorskip("scipy.stats")
    y = np.arange(400) % 5
    x, target = Augment(mixup=alpha).batch(IMAGES, y, epoch=0, samples=np.arange(400), seed=0, classes=5)
    share = target[np.arange(400), y].astype(float)
    expected = (
        IMAGES * share[:, None, None, None] + np.roll(IMAGES, -1, axis=0) * (1 - share)[:, None, None, None]
    )
    np.testing.assert_allclose(x, expected, atol=1e-5)
    np.testing.assert_allclose(target.sum(axis=1), 1, rtol=1e-6)
    assert stats.kstest(share, stats.beta(alpha, alpha).cdf).pvalue > 1e-3


def test_cut_pieces_count_by_their_area() -> None:
    y = np.arange(400) % 5
    x, target = Augment(cutmix=1.0).batch(IMAGES, y, epoch=1, samples=np.arange(400), seed=0, classes=5)
    other = np.roll(IMAGES, -1, axis=0)
    own = (x == IMAGES).all(axis=1)
    assert (own | (x == other).all(axis=1)).all()
    np.testing.assert_allclose(target[np.arange(400), y], own.mean(axis=(1, 2)), atol=1e-6)
    rows, _ = Augment(mixup=1.0, cutmix=1.0).batch(
        IMAGES, y, epoch=1, samples=np.arange(400), seed=0, classes=5
    )
    cut = ((rows == IMAGES) | (rows == other)).all(axis=(1, 2, 3))
    assert 0.4 < cut.mean() < 0.6


def test_what_cannot_be_augmented_is_refused() -> None:
    with pytest.raises(loom.ConfigError, match="flip must be a finite number at least 0 and at most 1"):
        Augment(flip=2)
    with pytest.raises(loom.ConfigError, match=r"no argument|unknown"):
        Augment(flips=0.5)  # type: ignore[call-arg]
    with pytest.raises(loom.ShapeError, match=r"images are \(rows, channels, height, width\)"):
        Augment(flip=1.0)(np.zeros((3, 4, 4)))
    with pytest.raises(loom.DTypeError, match="got int64"):
        Augment(flip=1.0)(np.zeros((3, 1, 4, 4), np.int64))
    with pytest.raises(loom.ConfigError, match="how many there are"):
        Augment(mixup=1.0).batch(IMAGES, np.zeros(400, int), epoch=0, samples=np.arange(400), seed=0)
    assert Augment.from_config(ALL.to_config()) == ALL
