"""llama.cpp on a few tokens: what it computes in f32, on two threads, with an adapter or without. Imported by tests that compare with
it; an ImportError where it is not installed."""
import ctypes

import llama_cpp as l
import numpy as np

_QUIET = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)  # kept as long as it may be called


def begin():
    """Once, before anything else: without its messages."""
    l.llama_log_set(_QUIET, ctypes.c_void_p(0))
    l.llama_backend_init()


def logits_of(path, tokens, adapter=None):
    """Logits, a row for each token."""
    parameters = l.llama_model_default_params()
    parameters.n_gpu_layers = 0
    model = l.llama_model_load_from_file(path.encode(), parameters)
    assert model, f"llama.cpp does not load {path}"
    options = l.llama_context_default_params()
    options.n_ctx = options.n_batch = options.n_ubatch = 64
    options.n_threads = 2
    options.type_k = options.type_v = 0  # f32
    options.flash_attn_type = 0
    lora = adapter and l.llama_adapter_lora_init(model, adapter.encode())
    assert lora or not adapter, f"llama.cpp does not load {adapter}"
    context = l.llama_init_from_model(model, options)
    if adapter:
        assert l.llama_set_adapters_lora(context, (l.llama_adapter_lora_p_ctypes * 1)(lora), 1, (ctypes.c_float * 1)(1.0)) == 0
    batch = l.llama_batch_init(len(tokens), 0, 1)
    batch.n_tokens = len(tokens)
    for i, token in enumerate(tokens):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = int(token), i, 1, 1
        batch.seq_id[i][0] = 0
    assert l.llama_decode(context, batch) == 0
    vocabulary = l.llama_vocab_n_tokens(l.llama_model_get_vocab(model))
    rows = [np.ctypeslib.as_array(l.llama_get_logits_ith(context, i), shape=(vocabulary,)).copy() for i in range(len(tokens))]
    l.llama_batch_free(batch)
    l.llama_free(context)
    l.llama_model_free(model)
    return np.stack(rows)
