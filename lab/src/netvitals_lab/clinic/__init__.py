"""The clinic: planted diseases and healthy controls, on which findings earn their error rates.

``DISEASES`` and ``CONTROLS`` are data; :func:`examine` plants one and judges what the instrument says, :func:`cure`
applies what it advises; ``bench/bugs/planted.py`` does it for all and writes the tables.
"""

from netvitals_lab.clinic.controls import CONTROLS, Control
from netvitals_lab.clinic.courses import Course, course
from netvitals_lab.clinic.disease import FAMILIES, GRADES, Disease
from netvitals_lab.clinic.diseases import DISEASES
from netvitals_lab.clinic.patients import ARCHITECTURES, patient
from netvitals_lab.clinic.scores import rate, scores
from netvitals_lab.clinic.session import Session
from netvitals_lab.clinic.treatments import TREATMENTS, treat
from netvitals_lab.clinic.trials import Cure, Trial, cure, examine, keep_watch

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
    "course",
    "cure",
    "examine",
    "keep_watch",
    "patient",
    "rate",
    "scores",
    "treat",
]
