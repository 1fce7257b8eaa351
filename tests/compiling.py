"""For tests that compile networks: in CI a missing compiler is a failure, elsewhere a skip."""

import os
import shutil

import pytest
import torch

HAS_VECTORS = torch.backends.cpu.get_cpu_capability() != "DEFAULT"
HAS_COMPILER = bool(os.environ.get("CI")) or shutil.which("g++") is not None or shutil.which("c++") is not None

needs_compiler = pytest.mark.skipif(
    not (HAS_COMPILER and HAS_VECTORS),
    reason="no C++ compiler here, or a CPU without vector instructions, for which torch's compiler writes broken code",
)
# torch's compiler still uses what torch itself calls deprecated
old_torch_names = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
