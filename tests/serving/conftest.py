"""Tests named `test_vllm_...` run where vLLM is installed: `make test-vllm`, in an environment of its own."""

import os
from importlib.util import find_spec

collect_ignore_glob = []
if find_spec("vllm"):
    os.environ.update(
        VLLM_ENABLE_V1_MULTIPROCESSING="0",  # the engine in the process of the tests, where they can look into it
        VLLM_CPU_OMP_THREADS_BIND="nobind",
        VLLM_CPU_CI_ENV="1",  # what is compiled is traced and then run as it is: inductor would take minutes
        VLLM_NO_USAGE_STATS="1",
        HF_HUB_OFFLINE="1",
        OMP_NUM_THREADS="1",
    )
else:
    collect_ignore_glob.append("test_vllm_*")
