"""netvitals inside other people's training loops and trackers. Each file needs its own extra and is imported by name:

``from netvitals.integrations.lightning import VitalsCallback``, ``….huggingface import VitalsCallback``,
``….trackers import send``.
"""
