#!/usr/bin/env python3
"""llama.cpp as the peer of `regard bench run --peer-cmd 'python3 bench/peers/llamacpp.py'`.

Needs llama-cpp-python (PyPI). Reads {"model": path, "ids": [...], "decode": n, "threads": n} on standard input and
prints the milliseconds until the first new token is known and for the n tokens after it, greedily. With "logits": true it
prints the logits of the last position of the prompt instead, for comparisons of quality.
"""
import json
import sys
import time

import llama_cpp
import numpy as np


def main():
    problem = json.load(sys.stdin)
    ids, decode = problem["ids"], problem.get("decode", 0)
    llama = llama_cpp.Llama(
        problem["model"], n_ctx=len(ids) + decode + 8, n_batch=512, n_threads=problem["threads"],
        n_threads_batch=problem["threads"], logits_all=False, verbose=False)
    vocabulary = llama.n_vocab()

    def logits():
        return np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(llama.ctx, -1), shape=(vocabulary,))

    if problem.get("logits"):
        llama.eval(ids)
        print(json.dumps({"logits": logits().astype(float).tolist()}))
        return
    llama.eval(ids[:16])  # its memory is there before the clock runs
    llama.reset()
    llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(llama.ctx), True)
    start = time.perf_counter()
    llama.eval(ids)
    token = int(logits().argmax())
    prompt = time.perf_counter() - start
    start = time.perf_counter()
    for _ in range(decode):
        llama.eval([token])
        token = int(logits().argmax())
    print(json.dumps({"prompt_ms": prompt * 1e3, "decode_ms": (time.perf_counter() - start) * 1e3}))


if __name__ == "__main__":
    main()
