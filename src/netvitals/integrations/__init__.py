"""netvitals inside other people's training loops and trackers. Each file needs its own extra and is imported by name:

``from netvitals.integrations.lightning import VitalsCallback``, ``….huggingface import VitalsCallback``,
``….trackers import send``.
"""

# for other packages of netvitals, not public
from netvitals.integrations.callback import network as network
from netvitals.integrations.live import Target as Target
from netvitals.integrations.live import target_of as target_of
