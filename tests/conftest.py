"""What holds for all tests: no test asserts an absolute time, Hypothesis included."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
