"""What people who train language models look at first: attention heads and mixtures of experts."""

from netvitals.vitals.language.attention import Attention
from netvitals.vitals.language.experts import Experts

__all__ = ["Attention", "Experts"]
