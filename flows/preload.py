"""Import what stages need. The fork server imports this once, and forks a process for each stage.

To import torch and transformers takes four seconds of CPU time, and a run has thirteen stages.
Nothing here may touch CUDA, which does not survive a fork.
"""

import gc
import pkgutil
import warnings
from importlib import import_module

import citer.stages
from citer.cli.main import tune_process
from citer.storage.code import stage_digests

tune_process()
modules = [f"citer.stages.{stage.name}" for stage in pkgutil.iter_modules(citer.stages.__path__)]
for name in ("flows.stage_process", *modules):
    import_module(name)
stage_digests()  # it is cached, and thus the digest of the code that the forks run
gc.collect()
gc.freeze()  # collection in a fork would write to the shared pages, and a write copies the page
# Python 3.12 warns of the threads of native libraries. They expect to be forked.
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
