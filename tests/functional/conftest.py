"""Laws are tried without a deadline: the first call of a torch function can take its time."""

from hypothesis import settings

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
