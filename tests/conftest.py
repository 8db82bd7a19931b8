"""Settings of all tests: hypothesis draws the same examples each time and does not judge a busy machine's clock."""

from hypothesis import settings

settings.register_profile("treadle", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("treadle")
