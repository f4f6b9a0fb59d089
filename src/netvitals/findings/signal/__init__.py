"""Rules about what passes through a network: units, depth, gradients, attention, experts, rank."""

from netvitals.findings.signal import depth, gradients, imbalance, language, rank, singular, spikes, units, variance

RULES = (
    *units.RULES,
    *variance.RULES,
    *depth.RULES,
    *rank.RULES,
    *spikes.RULES,
    *imbalance.RULES,
    *gradients.RULES,
    *language.RULES,
    *singular.RULES,
)
