"""Loaded by every interpreter that has this folder on PYTHONPATH: the chaos suite's processes.

It puts stand-ins for the modules that load torch, and stopping places into the product's
own modules, and does nothing where the suite has not asked for it.
"""

import os
import sys

if "CHAOS_DIR" in os.environ:
    from chaos_finder import ChaosFinder

    sys.meta_path.insert(0, ChaosFinder(stands_in=os.environ.get("CHAOS_RANKS") != "real"))
