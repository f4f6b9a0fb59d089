"""The clinic: planted diseases and healthy controls, on which findings earn their error rates.

``DISEASES`` and ``CONTROLS`` are data; :func:`examine` plants one and judges what the instrument says, :func:`cure`
applies what it advises; ``bench/clinic.py`` does it for all and writes the tables.
"""

from netvitals.lab.clinic.controls import CONTROLS, Control
from netvitals.lab.clinic.courses import Course, course
from netvitals.lab.clinic.disease import FAMILIES, GRADES, Disease
from netvitals.lab.clinic.diseases import DISEASES
from netvitals.lab.clinic.patients import ARCHITECTURES, patient
from netvitals.lab.clinic.scores import rate, scores
from netvitals.lab.clinic.session import Session
from netvitals.lab.clinic.treatments import TREATMENTS, treat
from netvitals.lab.clinic.trials import Cure, Trial, cure, examine, keep_watch

__all__ = [
    "ARCHITECTURES",
    "CONTROLS",
    "DISEASES",
    "FAMILIES",
    "GRADES",
    "TREATMENTS",
    "Control",
    "Course",
    "Cure",
    "Disease",
    "Session",
    "Trial",
    "cure",
    "course",
    "examine",
    "keep_watch",
    "patient",
    "rate",
    "scores",
    "treat",
]
