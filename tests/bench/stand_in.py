"""A child in place of the real one, which measures nothing and starts at once; and what it would say, by hand."""

import json

UNITS = (3, 0, 2)
MODEL = {
    "class": "ToyForCausalLM",
    "units_per_layer": list(UNITS),
    "parameters": 12_300_000,
    "dtype": "float32",
    "device": "cpu",
    "attention": "sdpa",
    "num_threads": 1,
}

# Twice as fast as the original for each sliding unit; a byte of cache a token and full unit.
SCRIPT = """
import json, os, signal, sys, time
job = json.load(sys.stdin)
rows = job["mask"]["full"] if job["mask"] else {units}
sliding = sum(row.count(False) for row in rows) if job["mask"] else 0
with open({log!r}, "a") as log:
    log.write(json.dumps([os.getpid(), sliding, job["contexts"]]) + "\\n")
def fail(moment):
    if (sliding, moment) == {moment}:
        {failure}
def reply(data):
    print(json.dumps(data), flush=True)
fail("load")
reply({{"model": {model}}})
for context in job["contexts"]:
    fail(context)
    reply({{"measurement": {{
        "context": context,
        "prefill_tokens_per_s": 1000 * 2**sliding / context,
        "decode_tokens_per_s": 100 * 2**sliding / context,
        "peak_memory_bytes": 2**20 + context,
        "cache_bytes": context * (5 - sliding),
    }}}})
"""


def write_script(path, log, moment=None, failure="pass", model=MODEL):
    """A child that does something at a moment: (number of sliding units, "load" or a context)."""
    path.write_text(SCRIPT.format(units=[[]], log=str(log), moment=moment, failure=failure, model=model))


def read_log(log) -> list[list]:
    """For each child [process id, sliding units, contexts]."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
