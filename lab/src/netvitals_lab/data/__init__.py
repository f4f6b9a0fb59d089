"""Data by name: embedded digits, folders of images and text, synthetic teachers, noise and sound.

``load("digits")`` needs nothing; the image archives and texts are read from a folder, given or named by
NETVITALS_DATA. Nothing is ever fetched.
"""

from netvitals_lab.data.audio import Audio
from netvitals_lab.data.batching import batches, crop_flip, order, steps_per_epoch
from netvitals_lab.data.catalogue import load, missing, names
from netvitals_lab.data.dataset import PROBE, Dataset, Split, row_major
from netvitals_lab.data.images import CIFAR10, CIFAR100, MNIST, Digits, FashionMNIST, Images
from netvitals_lab.data.synthetic import Noise, SequenceTeacher, VectorTeacher
from netvitals_lab.data.tokens import RandomTokens, Shards, Text

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "MNIST",
    "PROBE",
    "Audio",
    "Dataset",
    "Digits",
    "FashionMNIST",
    "Images",
    "Noise",
    "RandomTokens",
    "SequenceTeacher",
    "Shards",
    "Split",
    "Text",
    "VectorTeacher",
    "batches",
    "crop_flip",
    "load",
    "missing",
    "names",
    "order",
    "row_major",
    "steps_per_epoch",
]
