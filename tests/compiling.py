"""For tests that compile networks: in CI a missing compiler is a failure, elsewhere a skip."""

import os
import shutil

import pytest

needs_compiler = pytest.mark.skipif(
    not os.environ.get("CI") and shutil.which("g++") is None and shutil.which("c++") is None,
    reason="no C++ compiler here",
)
# torch's compiler still uses what torch itself calls deprecated
old_torch_names = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
