"""Real formats from folders: photographs, speech and encyclopaedia text, on tiny files made here."""

import numpy as np
import pytest
import torch
from scipy.io import wavfile

from netvitals_lab import data
from netvitals_lab.data.batching import batches, crop_flip, resized_crop_flip
from netvitals_lab.data.photographs import LIMIT
from netvitals_lab.data.speech import si_sdr

Image = pytest.importorskip("PIL.Image")


def picture(path, colour, size=(8, 8)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


def folders(root, train=3, test=2, size=(12, 8)):
    for c, colour in enumerate(((255, 0, 0), (0, 255, 0))):
        for i in range(train):
            picture(root / "train" / f"class{c}" / f"{i}.png", colour, size)
        for i in range(test):
            picture(root / "val" / f"class{c}" / f"{i}.png", colour, size)


def test_places_are_read_by_class_and_scaled_as_for_imagenet(tmp_path):
    folders(tmp_path / "places365")
    a = data.load("places365,side=4,train_per_class=2,test_per_class=1", tmp_path)
    assert a.train.x.shape == (4, 3, 4, 4) and a.train.y.tolist() == [0, 0, 1, 1] and len(a.test) == 2
    red = torch.tensor([(1 - 0.485) / 0.229, -0.456 / 0.224, -0.406 / 0.225])
    assert torch.allclose(a.train.x[0, :, 0, 0], red, atol=1e-3), a.train.x[0, :, 0, 0]
    assert a.classes == 2 and a.sizes["side"] == 4


def test_a_subset_of_each_class_is_chosen_by_its_seed(tmp_path):
    for i in range(20):
        picture(tmp_path / "train" / "one" / f"{i:02d}.png", (10 * i, 0, 0))
        picture(tmp_path / "val" / "one" / f"{i:02d}.png", (10 * i, 0, 0))
    picked = lambda seed: data.load(f"photographs,side=8,train_per_class=5,scaling=none,seed={seed}", tmp_path).train.x
    assert torch.equal(picked(0), picked(0)) and not torch.equal(picked(0), picked(1))
    with pytest.raises(ValueError, match="30 images a class were asked for, and class 0 has 20"):
        data.load("photographs,side=8,train_per_class=30", tmp_path)


def test_tiny_imagenet_reads_its_annotations(tmp_path):
    root = tmp_path / "tiny-imagenet-200"
    for wnid in ("n01", "n02"):
        for i in range(2):
            picture(root / "train" / wnid / "images" / f"{wnid}_{i}.JPEG", (200, 0, 0), (64, 64))
    picture(root / "val" / "images" / "val_0.JPEG", (0, 0, 200), (64, 64))
    picture(root / "val" / "images" / "val_1.JPEG", (0, 200, 0), (64, 64))
    notes = root / "val" / "val_annotations.txt"
    notes.write_text("val_0.JPEG\tn02\t0\t0\t9\t9\nval_1.JPEG\tn01\t0\t0\t9\t9\n")
    a = data.load("tiny-imagenet", tmp_path)
    assert a.train.x.shape == (4, 3, 64, 64) and a.test.y.tolist() == [1, 0] and a.classes == 2
    notes.write_text("val_0.JPEG\tn99\t0\t0\t9\t9\n")
    with pytest.raises(ValueError, match="the class 'n99', which train has not"):
        data.load("tiny-imagenet", tmp_path)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("tiny-imagenet", "val_annotations.txt"),
        ("places365", "train/CLASS"),
        ("imagenet", "train/CLASS"),
        ("speech", "noisy_trainset_28spk_wav"),
        ("wikitext", "wiki.train.raw"),
    ],
)
def test_what_is_missing_is_named_with_the_place(tmp_path, name, file):
    with pytest.raises(FileNotFoundError, match=file) as error:
        data.load(name, tmp_path)
    assert str(tmp_path) in str(error.value) and data.missing(name)


def test_bad_folders_get_a_sentence(tmp_path):
    folders(tmp_path / "imagenet")
    (tmp_path / "imagenet" / "val" / "class9").mkdir()
    with pytest.raises(ValueError, match="classes that train has not: class9"):
        data.load("imagenet,side=8", tmp_path)
    (tmp_path / "imagenet" / "val" / "class9").rmdir()
    (tmp_path / "imagenet" / "train" / "class0" / "0.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match="cannot be read as an image"):
        data.load("imagenet,side=8", tmp_path)
    side = int((LIMIT * 1e9 / 120) ** 0.5) + 10
    with pytest.raises(ValueError, match="GB in memory"):
        data.load(f"imagenet,side={side}", tmp_path)


def test_a_random_part_of_an_image_is_resized_to_the_whole():
    g = torch.Generator().manual_seed(0)
    ramp = torch.linspace(0, 1, 64).expand(200, 1, 64, 64).clone()
    out = resized_crop_flip(ramp, g)
    spread = out.amax((1, 2, 3)) - out.amin((1, 2, 3))
    mirrored = (out[:, 0, 0, 0] > out[:, 0, 0, -1]).float().mean()
    assert out.shape == ramp.shape and 0.35 < mirrored < 0.65, mirrored
    # widths are √(share · ratio) with share in [.7, 1] and ratio in [3/4, 4/3]
    assert 0.70 < spread.min() < 0.80 and spread.max() > 0.97, (spread.min(), spread.max())
    whole = resized_crop_flip(ramp[:50], g, area=(1.0, 1.0), ratio=1.0)
    assert torch.allclose(whole[:, :, :, 32:].mean() + whole[:, :, :, :32].mean(), torch.tensor(1.0), atol=1e-4)
    with pytest.raises(ValueError, match="share of the area"):
        resized_crop_flip(ramp, g, area=(0.0, 1.0))


def test_crops_are_padded_by_an_eighth_of_larger_images(monkeypatch):
    seen = []
    monkeypatch.setattr(
        "netvitals_lab.data.batching.crop_flip", lambda x, g, pad, fill: seen.append(pad) or crop_flip(x, g, pad=pad)
    )
    for side, pad in ((32, 4), (64, 8), (8, 4)):
        split = data.Split(torch.randn(6, 3, side, side), torch.zeros(6, dtype=torch.long))
        some = data.Dataset(name="some", train=split, test=split, probe=split, task="classes", classes=1)
        list(batches(some, 3, torch.Generator().manual_seed(0), augment=True))
        assert seen[-1] == pad, (side, seen)


def speech(root, rate=16_000, seconds=1.0):
    time = np.arange(int(rate * seconds)) / rate
    clean = 0.5 * np.sin(2 * np.pi * 440 * time)
    rng = np.random.default_rng(0)
    for part in ("trainset_28spk", "testset"):
        for kind, wave in (("clean", clean), ("noisy", clean + 0.05 * rng.normal(size=len(clean)))):
            (root / f"{kind}_{part}_wav").mkdir(parents=True)
            wavfile.write(root / f"{kind}_{part}_wav" / "p1.wav", rate, (32767 * wave).astype(np.int16))


def test_speech_of_another_rate_is_resampled_and_cut(tmp_path):
    speech(tmp_path / "voicebank", rate=48_000)
    a = data.load("speech,seconds=0.4", tmp_path)
    assert a.train.x.shape == (3, 1, 201, 65) and a.task == "values"  # 1 s in pieces of .4, 6400/100 + 1 frames
    loud = int(a.train.y[0, 0].mean(1).argmax())
    assert loud == 11, loud  # 440 Hz in bins of 16000/400 = 40 Hz
    assert (a.train.x - a.train.y).abs().mean() > 0.01
    (tmp_path / "voicebank" / "clean_testset_wav" / "p1.wav").unlink()
    with pytest.raises(ValueError, match=r"p1.wav is only in the first"):
        data.load("speech", tmp_path)


def test_si_sdr_is_blind_to_scale_and_counts_noise_in_decibels():
    g = torch.Generator().manual_seed(0)
    clean = torch.randn(2, 20_000, generator=g)
    noise = torch.randn(2, 20_000, generator=g)
    for level in (0.1, 1.0):
        measured = si_sdr(5 * (clean + level * noise), clean)
        assert torch.allclose(measured, torch.full((2,), -20 * np.log10(level)).float(), atol=0.2), measured
    with pytest.raises(ValueError, match="one shape"):
        si_sdr(clean, clean[:, :5])


def test_wikitext_has_its_own_test_text(tmp_path):
    (tmp_path / "wiki.train.raw").write_text("training words " * 40)
    (tmp_path / "wiki.test.raw").write_text("other words " * 20)
    a = data.load("wikitext,context=8,limit=100", tmp_path)
    assert bytes(a.test.x[0].tolist()) == b"other wo" and len(a.train) == 12 and a.classes == 256
