"""What every test may rely on, however the tests were started.

A shell that starts them in the background makes SIGINT ignored, and every child would
inherit that; tests that press Ctrl-C need it to mean something.
"""

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
