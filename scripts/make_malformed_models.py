#!/usr/bin/env python3
"""Writes whole model folders that are broken in their config.json or tokenizer.json, for tests that run the program.

    scripts/make_malformed_models.py FOLDER

FOLDER/cases.tsv lists them: folder, verb to run (look or tokens), verdict (ok or error) and a part of the message that an
error must have. The models are tiny: weights all zero. What is wrong with the tensor files themselves, see make_malformed.py.
Only the standard library is used.
"""
import importlib.util
import json
import os
import struct
import sys

ROOT = sys.argv[1] if len(sys.argv) == 2 else sys.exit(__doc__)
CASES = []

WIDTH, HEADS, LAYERS, INNER, PIECES, POSITIONS = 8, 2, 2, 16, 7, 16

BERT = {"model_type": "bert", "hidden_size": WIDTH, "num_attention_heads": HEADS, "num_hidden_layers": LAYERS, "intermediate_size": INNER,
        "vocab_size": PIECES, "max_position_embeddings": POSITIONS, "type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_act": "gelu"}
LLAMA = {"model_type": "llama", "hidden_size": WIDTH, "num_attention_heads": HEADS, "num_key_value_heads": 1, "num_hidden_layers": LAYERS,
         "intermediate_size": INNER, "vocab_size": PIECES, "max_position_embeddings": POSITIONS, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
         "hidden_act": "silu", "tie_word_embeddings": True}


def tokenizers():
    """The cases of the tokenizers' own tests: name, tokenizer.json, part of the message."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "text", "make_malformed.py")
    spec = importlib.util.spec_from_file_location("malformed_tokenizers", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def bert_shapes():
    shapes = {"embeddings.word_embeddings.weight": [PIECES, WIDTH], "embeddings.position_embeddings.weight": [POSITIONS, WIDTH],
              "embeddings.token_type_embeddings.weight": [2, WIDTH]}
    norms = ["embeddings.LayerNorm"]
    for layer in range(LAYERS):
        at = "encoder.layer.%d." % layer
        for part in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            shapes[at + part + ".weight"], shapes[at + part + ".bias"] = [WIDTH, WIDTH], [WIDTH]
        shapes[at + "intermediate.dense.weight"], shapes[at + "intermediate.dense.bias"] = [INNER, WIDTH], [INNER]
        shapes[at + "output.dense.weight"], shapes[at + "output.dense.bias"] = [WIDTH, INNER], [WIDTH]
        norms += [at + "attention.output.LayerNorm", at + "output.LayerNorm"]
    for norm in norms:
        shapes[norm + ".weight"], shapes[norm + ".bias"] = [WIDTH], [WIDTH]
    return shapes


def llama_shapes():
    shapes = {"model.embed_tokens.weight": [PIECES, WIDTH], "model.norm.weight": [WIDTH]}
    for layer in range(LAYERS):
        at = "model.layers.%d." % layer
        shapes[at + "input_layernorm.weight"] = shapes[at + "post_attention_layernorm.weight"] = [WIDTH]
        shapes[at + "self_attn.q_proj.weight"] = shapes[at + "self_attn.o_proj.weight"] = [WIDTH, WIDTH]
        shapes[at + "self_attn.k_proj.weight"] = shapes[at + "self_attn.v_proj.weight"] = [WIDTH // HEADS, WIDTH]
        shapes[at + "mlp.gate_proj.weight"] = shapes[at + "mlp.up_proj.weight"] = [INNER, WIDTH]
        shapes[at + "mlp.down_proj.weight"] = [WIDTH, INNER]
    return shapes


def safetensors(shapes):
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 4
        for extent in shape:
            size *= extent
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(at)


def case(name, files, verb, error=None):
    """error: a part of the expected message; None: the model must work."""
    folder = os.path.join(ROOT, name)
    os.makedirs(folder)
    for file, content in files.items():
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        with open(os.path.join(folder, file), "wb") as out:
            out.write(data)
    CASES.append((name, verb, "ok" if error is None else "error", error or ""))


def make_configs(tokenizer):
    weights = {"bert": safetensors(bert_shapes()), "llama": safetensors(llama_shapes())}

    def add(name, base, error=None, config=None, **fields):
        case(name, {"config.json": {**base, **fields} if config is None else config, "tokenizer.json": tokenizer,
                    "model.safetensors": weights[base["model_type"]]}, "look", error)

    add("good_bert", BERT)
    add("good_llama", LLAMA)
    for number, value in enumerate([0, -1, 10**9, 1e9, "12", 12.5, None, [2], True]):
        add("heads_bad_%d" % number, BERT, "num_attention_heads", num_attention_heads=value)
    add("heads_nan", BERT, "not valid JSON", num_attention_heads=float("nan"))
    add("heads_3", BERT, "it must divide", num_attention_heads=3)
    add("heads_missing", BERT, "num_attention_heads", config={k: v for k, v in BERT.items() if k != "num_attention_heads"})
    add("kv_heads_4", LLAMA, "num_key_value_heads", num_key_value_heads=4)
    add("kv_heads_0", LLAMA, "num_key_value_heads", num_key_value_heads=0)
    add("rows_8", BERT, "word_embeddings", vocab_size=8)
    add("rows_6", BERT, "word_embeddings", vocab_size=6)
    add("rows_2_40", BERT, "vocab_size", vocab_size=2**40)
    add("positions_17", BERT, "position_embeddings", max_position_embeddings=17)
    add("width_16", BERT, "16", hidden_size=16)
    add("eps_0", BERT, "layer_norm_eps", layer_norm_eps=0)
    add("eps_1e40", BERT, "layer_norm_eps", layer_norm_eps=1e40)
    add("rms_eps_0", LLAMA, "rms_norm_eps", rms_norm_eps=0)
    add("rope_base_0", LLAMA, "rope_theta", rope_theta=0)
    add("rope_base_text", LLAMA, "rope_theta", rope_theta="1e4")
    add("layers_1000000", BERT, "num_hidden_layers", num_hidden_layers=10**6)
    add("layers_3", BERT, "encoder.layer.2", num_hidden_layers=3)
    add("type_unknown", BERT, "known architectures are", model_type="bertt")
    add("type_number", BERT, "model_type", model_type=7)
    add("type_missing", BERT, "model_type", config={k: v for k, v in BERT.items() if k != "model_type"})
    add("activation_unknown", BERT, "hidden_act", hidden_act="swish2")
    add("field_twice", BERT, "\"hidden_size\" is given twice", config=json.dumps(BERT).encode()[:-1] + b', "hidden_size": 8}')
    add("config_empty", BERT, "not valid JSON", config=b"")
    add("config_cut", BERT, "not valid JSON", config=json.dumps(BERT).encode()[:60])
    add("config_array", BERT, "config.json", config=b"[]")
    add("config_deep", BERT, "nested deeper", config=b"[" * 100_000)
    add("config_not_utf8", BERT, "not valid JSON", config=b'{"model_type": "\xff"}')
    case("config_missing", {"tokenizer.json": tokenizer, "model.safetensors": weights["bert"]}, "look", "config.json")
    case("weights_missing", {"config.json": BERT, "tokenizer.json": tokenizer}, "look", "embeddings.word_embeddings.weight is missing")
    case("tokenizer_missing", {"config.json": BERT, "model.safetensors": weights["bert"]}, "look", "tokenizer.json")


def make_tokenizers(cases):
    wanted = ("good_bpe", "merge_unknown_part", "merge_unknown_result", "merge_three_parts", "merge_empty", "id_twice", "id_huge", "id_2_32", "id_negative",
              "added_id_taken", "added_empty", "regex_broken", "regex_catastrophic", "model_foo", "model_missing", "normalizer_foo", "pre_tokenizer_foo",
              "post_processor_foo", "cut", "empty", "deep", "vocab_key_twice")
    found = {name: (content, message) for name, content, message in cases if name in wanted}
    for name in wanted:
        content, message = found[name]
        data = content.encode() if isinstance(content, str) else content
        case("tokenizer_" + name, {"config.json": BERT, "tokenizer.json": data}, "tokens", None if name.startswith("good") else message)


malformed = tokenizers()
make_configs(malformed.WORDPIECE)
make_tokenizers(malformed.json_cases())
with open(os.path.join(ROOT, "cases.tsv"), "w") as table:
    for row in CASES:
        table.write("\t".join(row) + "\n")
print("%d model folders in %s" % (len(CASES), ROOT))
