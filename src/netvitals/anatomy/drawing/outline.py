"""An anatomy as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from netvitals.anatomy.atlas import Anatomy


def outline_of(anatomy: Anatomy) -> str:
    """A readable outline."""
    self = anatomy
    lines = [
        f"Anatomy of {self.model}: {len(self.operations)} operations, {len(self.layers)} layers, "
        f"{len(self.activations)} activations, {len(self.gates)} gates, {len(self.parameters)} parameters"
    ]
    for region in self.activations[:30]:
        shape = "×".join(map(str, self.values[region.root].shape))
        lines.append(f"  {region.name:<32} {region.text:<40} {shape:<14} {region.line or ''}")
    if len(self.activations) > 30:
        lines.append(f"  … and {len(self.activations) - 30} more activations")
    lines += [f"  {gate.name:<32} gate of two branches at {gate.line or 'unknown'}" for gate in self.gates[:10]]
    clean = [f"{c.writer} → {', '.join(c.readers)}" for c in self.connections if c.clean]
    lines += [f"  feeds: {'; '.join(clean[:12])}{' …' if len(clean) > 12 else ''}"] if clean else []
    ties = [f"{p.name} = {' = '.join(p.ties)}" for p in self.parameters if p.ties]
    lines += [f"  tied: {', '.join(ties)}"] if ties else []
    frozen = [p.name for p in self.parameters if p.frozen]
    lines += [f"  frozen: {', '.join(frozen[:8])}{' …' if len(frozen) > 8 else ''}"] if frozen else []
    lines += [f"  not charted: {place}: {why}" for place, why in list(self.skipped.items())[:10]]
    return "\n".join(lines)
