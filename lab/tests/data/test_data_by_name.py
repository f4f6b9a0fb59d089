"""Data by name: what is loaded, what is fixed, and what a person is told when it is not there."""

import gzip
import pickle
import struct

import numpy as np
import pytest
import torch

from netvitals_lab import data, models, training


def write_idx(path, array, zipped):
    raw = b"\x00\x00\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}i", *array.shape) + array.tobytes()
    if zipped:
        path = path.with_name(path.name + ".gz")
    (gzip.open if zipped else open)(path, "wb").write(raw)


def write_mnist(folder, zipped=False, train=70, test=66):
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    out = {}
    for part, count in (("train", train), ("t10k", test)):
        out[part] = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8), np.arange(count, dtype=np.uint8) % 10
        write_idx(folder / f"{part}-images-idx3-ubyte", out[part][0], zipped)
        write_idx(folder / f"{part}-labels-idx1-ubyte", out[part][1], zipped)
    return out


def same(a, b):
    return all(
        torch.equal(getattr(getattr(a, s), k), getattr(getattr(b, s), k))
        for s in ("train", "test", "probe")
        for k in "xy"
    )


def test_digits_are_embedded_and_fixed():
    a = data.load("digits")
    assert (len(a.train), len(a.test), len(a.probe)) == (1437, 360, 64)
    assert a.train.x.shape[1:] == (1, 8, 8)
    assert abs(a.train.x.mean()) < 1e-5 and abs(a.train.x.std() - 1) < 1e-4
    assert a.sizes == {"inputs": 64, "outputs": 10, "classes": 10, "channels": 1, "side": 8}
    assert same(a, data.load("digits"))
    assert not torch.equal(a.train.y, data.load("digits,seed=1").train.y)


def test_range_scaling_is_the_one_of_the_hessian_paper():
    a = data.load("digits,scaling=range")
    assert a.train.x.min() == -1 and a.train.x.max() == 1
    assert set(((a.train.x + 1) * 8).unique().tolist()) == set(range(17))


def test_probe_is_held_out_and_from_the_test_set():
    a = data.load("digits")
    test = {tuple(x.flatten().tolist()) for x in a.test.x}
    assert all(tuple(x.flatten().tolist()) in test for x in a.probe.x)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize(("name", "sub"), [("mnist", "mnist"), ("fashion-mnist", "fashion-mnist"), ("mnist", "")])
def test_idx_files(tmp_path, name, sub, zipped):
    raw = write_mnist(tmp_path / sub, zipped)
    a = data.load(name, tmp_path)
    assert a.train.x.shape == (70, 1, 28, 28) and len(a.test) == 66 and len(a.probe) == 64
    back = a.train.x[:, 0] * a.std + a.mean
    assert torch.allclose(back, torch.from_numpy(raw["train"][0]).float(), atol=1e-3)
    assert a.train.y.tolist() == raw["train"][1].tolist()


def test_folder_from_the_environment(tmp_path, monkeypatch):
    write_mnist(tmp_path)
    monkeypatch.setenv("NETVITALS_DATA", str(tmp_path))
    part = data.load("mnist,train=3")
    assert len(part.train) == 3 and part.classes == 10


def test_damaged_idx_file(tmp_path):
    write_mnist(tmp_path)
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ValueError, match="cut or damaged"):
        data.load("mnist", tmp_path)
    path.write_bytes(b"<html>")
    with pytest.raises(ValueError, match="not an idx file"):
        data.load("mnist", tmp_path)


def test_cifar_batches_and_npz_agree(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (15, 32, 32, 3), dtype=np.uint8)
    y = rng.integers(0, 10, 15)
    x_test, y_test = x[:4].copy(), y[:4].copy()
    folder = tmp_path / "a" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    parts = [(f"data_batch_{i + 1}", x[3 * i : 3 * i + 3], y[3 * i : 3 * i + 3]) for i in range(5)]
    for name, images, labels in [*parts, ("test_batch", x_test, y_test)]:
        flat = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
        with (folder / name).open("wb") as file:
            pickle.dump({b"data": flat, b"labels": [int(v) for v in labels]}, file, protocol=2)
    (tmp_path / "b").mkdir()
    np.savez(tmp_path / "b" / "cifar10-part.npz", x_train=x, y_train=y, x_test=x_test, y_test=y_test)
    a, b, c = (data.load("cifar10", p) for p in (tmp_path / "a", tmp_path / "b", tmp_path / "b" / "cifar10-part.npz"))
    assert same(a, b) and same(b, c)
    assert a.train.x.shape == (15, 3, 32, 32)
    assert torch.allclose(
        a.train.x * a.std.view(3, 1, 1) + a.mean.view(3, 1, 1),
        torch.from_numpy(x.transpose(0, 3, 1, 2).copy()).float(),
        atol=1e-3,
    )


def test_cifar100_and_packed_images(tmp_path):
    rng = np.random.default_rng(0)
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    flat = rng.integers(0, 256, (6, 3072), dtype=np.uint8)
    for name in ("train", "test"):
        (folder / name).write_bytes(pickle.dumps({b"data": flat, b"fine_labels": [3, 99, 0, 1, 2, 5]}, protocol=2))
    a = data.load("cifar100", tmp_path)
    assert a.classes == 100 and a.train.x.shape == (6, 3, 32, 32)
    big = rng.integers(0, 256, (4, 64, 64, 3), dtype=np.uint8)
    np.savez(tmp_path / "tiny.npz", x_train=big, y_train=[0, 1, 2, 3], x_test=big, y_test=[3, 2, 1, 0])
    b = data.load("images:tiny.npz", tmp_path)
    assert b.sizes == {"inputs": 12288, "outputs": 4, "classes": 4, "channels": 3, "side": 64}
    (tmp_path / "tiny.npz").write_bytes(b"not an archive")
    with pytest.raises(ValueError, match=r"not an \.npz"):
        data.load("images:tiny.npz", tmp_path)
    with pytest.raises(ValueError, match="packed file"):
        data.load("images")


def test_cifar10_does_not_take_the_file_of_cifar100(tmp_path):
    images = np.zeros((2, 32, 32, 3), np.uint8)
    np.savez(tmp_path / "cifar100.npz", x_train=images, y_train=[0, 1], x_test=images, y_test=[0, 1])
    assert data.load("cifar100", tmp_path).name == "cifar100"
    with pytest.raises(FileNotFoundError, match="cifar10"):
        data.load("cifar10", tmp_path)


def write_shard(path, tokens):
    header = np.zeros(256, np.int32)
    header[:3] = 20240520, 1, len(tokens)
    path.write_bytes(header.tobytes() + np.asarray(tokens, np.uint16).tobytes())


def test_token_shards(tmp_path):
    write_shard(tmp_path / "text_train_000001.bin", range(100))
    write_shard(tmp_path / "text_train_000002.bin", [50_000] * 50)
    write_shard(tmp_path / "text_val_000000.bin", range(40))
    a = data.load("shards,context=8", tmp_path)
    assert a.sizes == {"vocab": 50_257, "context": 8}
    assert a.train.x[1].tolist() == list(range(8, 16)) and a.train.y[1].tolist() == list(range(9, 17))
    assert len(a.train) == 149 // 8 and a.train.x.max() == 50_000 and len(a.test) == 39 // 8
    assert len(data.load("shards,context=8,limit=20", tmp_path).train) == 2
    model = models.build("gpt-micro,width=16,depth=1", data=a)
    history = training.train(model, a, training.Recipe(steps=2, batch=2, lr=0.01))
    assert history.stopped is None
    with pytest.raises(ValueError, match="below 300"):
        data.load("shards,context=8,vocab=300", tmp_path)
    (tmp_path / "text_val_000000.bin").write_bytes(b"x" * 2000)
    with pytest.raises(ValueError, match="20240520"):
        data.load("shards,context=8", tmp_path)
    with pytest.raises(FileNotFoundError, match="train"):
        data.load("shards", tmp_path / "nowhere")


class _Bomb:
    def __reduce__(self):
        return (print, ("a batch file ran code",))


def test_a_batch_file_cannot_run_code(tmp_path):
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        (tmp_path / name).write_bytes(pickle.dumps(_Bomb(), protocol=2))
    with pytest.raises(ValueError, match="was not loaded"):
        data.load("cifar10", tmp_path)


def test_npz_with_other_contents(tmp_path):
    np.savez(tmp_path / "cifar10.npz", images=np.zeros(3))
    with pytest.raises(ValueError, match=r"x_train.*it holds images"):
        data.load("cifar10", tmp_path)
    zeros = np.zeros((2, 32, 32, 3), np.float32)
    np.savez(tmp_path / "cifar10.npz", x_train=zeros, y_train=[0, 1], x_test=zeros, y_test=[0, 1])
    with pytest.raises(ValueError, match=r"uint8.*float32"):
        data.load("cifar10", tmp_path)


@pytest.mark.parametrize(
    ("name", "file"),
    [("mnist", "train-images-idx3-ubyte"), ("cifar10", "data_batch_1"), ("text:corpus.txt", "corpus.txt")],
)
def test_missing_data_says_what_and_where(tmp_path, monkeypatch, name, file):
    monkeypatch.delenv("NETVITALS_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=file) as error:
        data.load(name, tmp_path)
    assert str(tmp_path) in str(error.value) and "NETVITALS_DATA" in str(error.value)
    with pytest.raises(FileNotFoundError, match=file) as error:
        data.load(name)
    assert str(error.value).count("NETVITALS_DATA") == 1


def test_text_is_bytes_and_the_next_byte(tmp_path):
    text = ("Vital signs. " * 100).encode()
    (tmp_path / "corpus.txt").write_bytes(text)
    a = data.load("text:corpus.txt,context=8", tmp_path)
    assert a.sizes == {"vocab": 256, "context": 8}
    assert bytes(a.train.x[3].tolist()) == text[24:32]
    assert bytes(a.train.y[3].tolist()) == text[25:33]
    assert len(data.load("text:corpus.txt,context=8,stride=1", tmp_path).train) == 1170 - 8
    assert len(a.train) * 8 <= 1170 and bytes(a.test.x[0].tolist()) == text[1170:1178]
    with pytest.raises(ValueError, match="too few"):
        data.load("text:corpus.txt,context=500", tmp_path)
    with pytest.raises(ValueError, match=r"text:corpus\.txt"):
        data.load("text")


def test_teacher_is_its_formula():
    kind = data.VectorTeacher(inputs=6, modes=(1.0, 0.3), count=128, test=64)
    a, v = kind.load(None), data.VectorTeacher(inputs=6, modes=(1.0, 0.3)).directions()
    assert torch.allclose(v.T @ v, torch.eye(2), atol=1e-6)
    assert torch.allclose(a.train.y[:, 0], torch.tanh(a.train.x @ v) @ torch.tensor([1.0, 0.3]), atol=1e-6)
    assert a.sizes == {"inputs": 6, "outputs": 1}
    x, y = a.draw(5, torch.Generator().manual_seed(1))
    assert torch.allclose(y[:, 0], torch.tanh(x @ v) @ torch.tensor([1.0, 0.3]), atol=1e-6)


def test_teacher_loss_at_zero_is_the_number_of_the_saddle_paper():
    a = data.load("teacher", count=400_000, test=64)
    assert 0.5 * a.train.y.square().mean().item() == pytest.approx(0.197147, abs=1e-3)


def test_antithetic_teacher_has_unit_second_moment():
    a = data.load("teacher,inputs=5,count=64,antithetic=yes")
    assert torch.allclose(a.train.x.T @ a.train.x / len(a.train), torch.eye(5), atol=1e-5)
    assert torch.equal(a.train.x[:32], -a.train.x[32:])


def test_sequence_teacher_is_standardised():
    a = data.load("sequence-teacher")
    assert a.train.x.shape == (2048, 8, 16) and a.test.x.shape == (512, 8, 16)
    assert abs(a.train.y.mean()) < 1e-5 and abs(a.train.y.std() - 1) < 1e-5


def test_noise_images_and_vectors():
    assert data.load("noise,inputs=7,count=9,test=5").train.x.shape == (9, 7)
    smooth = data.load("noise,channels=3,side=32,smooth=yes,count=9,test=5")
    assert smooth.train.x.shape == (9, 3, 32, 32) and smooth.train.x.abs().max() <= 1
    with pytest.raises(ValueError, match="side"):
        data.load("noise,smooth=yes")


def test_audio_can_be_denoised_by_its_network():
    a = data.load("audio,count=8,test=64")
    assert a.train.x.shape == (8, 1, 33, 33) and a.task == "values"
    noisy = (a.train.x - a.train.y).square().mean()
    assert 0.01 < noisy < 1
    assert models.build("denoiser,width=4,hidden=8")(a.train.x).shape == a.train.y.shape


def test_permuted_targets_keep_inputs():
    a = data.load("digits")
    b = a.permuted(3)
    assert torch.equal(a.train.x, b.train.x) and not torch.equal(a.train.y, b.train.y)
    assert torch.equal(a.train.y.bincount(), b.train.y.bincount())
    assert same(b, a.permuted(3))


@pytest.mark.parametrize("name", ["digits", "teacher", "noise", "random-tokens", "audio,count=64"])
def test_every_synthetic_set_is_fixed_by_its_seed(name):
    assert same(data.load(name), data.load(name))
    assert not torch.equal(data.load(name).train.x, data.load(name, seed=5).train.x)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("digit", "digits"),
        ("digits,scale=range", "scaling"),
        ("digits:file", "only text"),
        ("digits,scaling=log", "standard"),
        ("teacher,inputs=1,modes=1/2", "orthonormal"),
        ("audio,samples=3", "window"),
        ("digits,train=0", "at least one"),
    ],
)
def test_a_wrong_name_gets_a_sentence(name, words):
    with pytest.raises(ValueError, match=words):
        data.load(name)


def test_models_fit_the_data_by_themselves():
    for name, spec in [
        ("digits", "mlp,hidden=8x2"),
        ("digits", "resnet-mini,width=4"),
        ("teacher", "mlp,hidden=4x2"),
        ("random-tokens,vocab=11,context=8,count=4", "gpt-micro,width=16,depth=1"),
    ]:
        a = data.load(name)
        out = models.build(spec, data=a)(a.probe.x)
        assert out.shape[-1] == (a.classes or 1)
