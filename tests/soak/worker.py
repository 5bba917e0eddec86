"""One process of the soak: works through seeds of one flavour and says on its output how each went."""

import gc
import importlib
import json
import sys
import time
import traceback
import warnings

import psutil


def main():
    """`worker.py <front end> <seed>…`: one line of JSON before each case, one after it."""
    front_end, *seeds = sys.argv[1:]
    out = sys.stdout
    sys.stdout = sys.stderr
    warnings.simplefilter("ignore")
    cases = importlib.import_module(f"tests.soak.{front_end}_cases")
    for seed in map(int, seeds):
        _say(out, {"started": seed})
        _say(out, _tried(cases, seed))


def _tried(cases, seed):
    from tests.soak.comparing import Undecided

    began = time.monotonic()
    done = {"seed": seed, "outcome": "good", "what": "", "why": ""}
    try:
        done["what"] = cases.run(seed)
    except Undecided as error:
        done |= {"outcome": "undecided", "what": "; ".join(getattr(error, "__notes__", [])), "why": str(error)}
    except BaseException as error:
        text = "".join(traceback.format_exception(error))
        done |= {"outcome": "failed", "why": f"{type(error).__name__}: {error}"[:600], "trace": text[-6000:]}
        done["what"] = "; ".join(getattr(error, "__notes__", []))
    gc.collect()
    memory = psutil.Process().memory_info().rss / 2**20
    return {**done, "seconds": round(time.monotonic() - began, 2), "memory": round(memory)}


def _say(out, message):
    out.write(json.dumps(message) + "\n")
    out.flush()


if __name__ == "__main__":
    main()
