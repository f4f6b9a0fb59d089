"""Networks with one argument for the activation and one for the norm.

Built by name, ``build("mlp:64-128x3-10,act=gelu,norm=batch")``, or from a dataclass, ``build(MLPSpec(act="gelu"))``.
Every activation is a module of its own at its own call site, and never works in place, so that it can be watched.
"""

from netvitals_lab.models.catalogue import ModelSpec, about, build, names, parse
from netvitals_lab.models.denoiser import Denoiser, DenoiserSpec
from netvitals_lab.models.gpt import GPT, GPTSpec
from netvitals_lab.models.mixer import Mixer, MixerSpec
from netvitals_lab.models.mlp import MLP, Diamond, MLPSpec
from netvitals_lab.models.resnet import ResNet, ResNetSpec
from netvitals_lab.models.toys import PositionMLP, PositionMLPSpec, ToyAttention, ToyAttentionSpec
from netvitals_lab.models.transformer import ViT, ViTSpec
from netvitals_lab.models.vgg import VGG, VGGSpec

__all__ = [
    "GPT",
    "MLP",
    "VGG",
    "Denoiser",
    "DenoiserSpec",
    "Diamond",
    "GPTSpec",
    "MLPSpec",
    "Mixer",
    "MixerSpec",
    "ModelSpec",
    "PositionMLP",
    "PositionMLPSpec",
    "ResNet",
    "ResNetSpec",
    "ToyAttention",
    "ToyAttentionSpec",
    "VGGSpec",
    "ViT",
    "ViTSpec",
    "about",
    "build",
    "names",
    "parse",
]
