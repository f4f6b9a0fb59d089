"""The fixtures that all tests share."""

from shared_fixtures import *  # noqa: F403
