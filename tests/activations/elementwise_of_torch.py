"""Prints, as JSON, the names of everything in torch that acts on each element of one tensor alone.

Run in a process of its own with a time limit: what is called here is not known beforehand. Of ``torch`` only
what it lists itself as a function of tensors is called, so that no switch is touched, and only with one small tensor.
A function counts if its output has the shape of the input and an entry stays bit for bit what it is when others change,
whichever they are; one that only puts entries in another place does not.
"""

import json
import warnings

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import get_overridable_functions

SHAPES = ((6, 4), (3, 4, 5), (2, 3, 4, 5))
UNUSABLE = {"backward", "share_memory_", "apply_", "map_", "map2_", "wait"}  # no functions of values


def inputs(shape, seed):
    """Values inside (0, 1), where the logarithm, the arcsine and the others are all defined; and a share of others."""
    g = torch.Generator().manual_seed(seed)
    x, other = (0.1 + 0.8 * torch.rand(shape, generator=g, dtype=torch.float64) for _ in range(2))
    kept = torch.rand(shape, generator=g) < 0.5
    return x, torch.where(kept, x, other), kept


def call(f, x):
    torch.manual_seed(0)
    y = f(x.clone())
    return y if isinstance(y, torch.Tensor) and y.shape == x.shape else None


def same(y, z):
    if y.dtype != z.dtype:
        return False
    return bool(((y == z) | ((y != y) & (z != z))).all())  # NaN outside the domain is the same as NaN


def acts_alone(f):
    answers = []
    for shape in SHAPES:
        for seed in range(2):
            x, changed, kept = inputs(shape, seed)
            try:
                y, z = call(f, x), call(f, changed)
                if y is None or z is None:
                    answers.append(None)
                else:
                    answers.append(same(y[kept], z[kept]))
            except Exception:
                answers.append(None)  # it wants more than one tensor, or another shape
    expected = [a for a in answers if a is not None]
    return bool(expected) and all(expected)


def functions():
    overridable = get_overridable_functions()
    listed = {id(f) for f in overridable[torch]}
    for place in (F, torch, torch.Tensor, torch.special):
        for name in dir(place):
            f = getattr(place, name)
            fits = place is not torch or id(f) in listed  # elsewhere there are functions of tensors and nothing else
            if fits and not name.startswith("_") and name not in UNUSABLE and callable(f) and not isinstance(f, type):
                yield name, f


def built(kind):
    for arguments in ((), (3,), (4,), (0.1, 0.2), (3, 3), (2, 4)):
        try:
            return kind(*arguments)
        except Exception:
            continue
    return None


def modules():
    for name in dir(nn):
        kind = getattr(nn, name)
        if isinstance(kind, type) and issubclass(kind, nn.Module) and kind is not nn.Module:
            module = built(kind)
            if module is not None and (name == "Identity" or "container" not in kind.__module__):
                yield name, module.double()


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found = {
        "functions": sorted({name for name, f in functions() if acts_alone(f)}),
        "modules": sorted(name for name, module in modules() if acts_alone(module)),
        "tried": [len(list(functions())), len(list(modules()))],
    }
    print(json.dumps(found))
