"""Writes broken tokenizer files (and a few good ones) into a folder: make_malformed.py FOLDER

FOLDER/expected.tsv says of each file what the error must contain; nothing for a good file. The files of FOLDER/json are also the
first corpus of tests/fuzz/fuzz_tokenizer_json.cc.
"""

import copy
import json
import os
import struct
import sys

WORDPIECE = {
    "version": "1.0", "truncation": None, "padding": None,
    "added_tokens": [{"id": i, "content": c, "special": True, "normalized": False} for i, c in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])],
    "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
        "pair": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
                 {"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": "[SEP]", "type_id": 1}}],
        "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]}, "[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]}}},
    "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
              "vocab": {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "an": 4, "##imal": 5, ",": 6}},
}
BPE = {
    "added_tokens": [{"id": 5, "content": "<|end|>", "special": True, "normalized": False}],
    "normalizer": None, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}, "post_processor": None,
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "dropout": None, "unk_token": None, "vocab": {"a": 0, "b": 1, "ab": 2, "\u0120": 3, "\u0120ab": 4}, "merges": ["a b", ["\u0120", "ab"]]},
}
UNIGRAM = {
    "added_tokens": [{"id": 0, "content": "<s>", "special": True, "normalized": False}, {"id": 1, "content": "</s>", "special": True, "normalized": False},
                     {"id": 2, "content": "<unk>", "special": True, "normalized": False}],
    "normalizer": None, "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}, "decoder": {"type": "Metaspace"},
    "post_processor": {"type": "RobertaProcessing", "cls": ["<s>", 0], "sep": ["</s>", 1]},
    "model": {"type": "Unigram", "unk_id": 2, "vocab": [["<s>", 0], ["</s>", 0], ["<unk>", 0], ["\u2581", -2.5], ["a", -3.5], ["\u2581ab", -4]]},
}
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def changed(base, *edits):
    """base with each (path, value) set; the value KeyError removes."""
    out = copy.deepcopy(base)
    for path, value in edits:
        at = out
        for key in path[:-1]:
            at = at[key]
        if value is KeyError:
            del at[path[-1]]
        elif isinstance(at, list) and path[-1] == len(at):
            at.append(value)
        else:
            at[path[-1]] = value
    return out


def split_by(regex, behavior="Isolated"):
    return {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": False},
                                                  {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}]}


def json_cases():
    vocab, merges, added = ("model", "vocab"), ("model", "merges"), ("added_tokens",)
    token = lambda content, id: {"id": id, "content": content, "special": True, "normalized": False}
    yield "good_wordpiece", WORDPIECE, ""
    yield "good_bpe", BPE, ""
    yield "good_unigram", UNIGRAM, ""
    yield "good_llama3_split", changed(BPE, (("pre_tokenizer",), split_by(LLAMA3))), ""
    yield "good_no_added_tokens", changed(BPE, (added, KeyError)), ""
    # Merges.
    yield "merge_unknown_part", changed(BPE, (merges + (1,), ["a", "x"])), "merge 1 (\"a\", \"x\"): \"x\" is not in the vocabulary"
    yield "merge_unknown_result", changed(BPE, (merges + (1,), "b a")), "\"ba\" is not in the vocabulary"
    yield "merge_three_parts", changed(BPE, (merges + (0,), "a b a")), "merge 0 is \"a b a\""
    yield "merge_list_of_three", changed(BPE, (merges + (0,), ["a", "b", "a"])), "merge 0 is"
    yield "merge_empty", changed(BPE, (merges + (1,), "")), "merge 1 is \"\""
    yield "merge_empty_part", changed(BPE, (merges + (1,), ["", "a"])), "merge 1 (\"\", \"a\"): a part is empty"
    yield "merge_one_part", changed(BPE, (merges + (1,), "ab")), "merge 1 is \"ab\""
    yield "merge_number", changed(BPE, (merges + (1,), 7)), "merge 1 is 7"
    yield "merge_twice", changed(BPE, (merges + (2,), "a b")), "merge 2 (\"a\", \"b\"): is given twice"
    yield "merges_missing", changed(BPE, (merges, KeyError)), "merges"
    # Ids.
    yield "id_twice", changed(BPE, (vocab + ("b",), 2)), "id 2 is given twice"
    yield "id_huge", changed(BPE, (vocab + ("b",), 10**9)), "has the id 1000000000"
    yield "id_2_32", changed(BPE, (vocab + ("b",), 2**32)), "4294967296"
    yield "id_negative", changed(BPE, (vocab + ("b",), -1)), "-1"
    yield "id_fraction", changed(BPE, (vocab + ("b",), 1.5)), "1.5"
    yield "id_string", changed(WORDPIECE, (vocab + ("an",), "4")), "\"an\""
    yield "added_id_taken", changed(WORDPIECE, (added + (4,), token("[NEW]", 0))), "id 0 is given twice"
    yield "added_other_id", changed(WORDPIECE, (added + (0, "id"), 4)), "the added token \"[PAD]\" has the id 4, but 0 in the vocabulary"
    yield "added_empty", changed(WORDPIECE, (added + (4,), token("", 9))), "the added token with id 9 is empty"
    yield "added_twice", changed(WORDPIECE, (added + (4,), token("[PAD]", 0))), "the added token \"[PAD]\" is given twice"
    yield "added_id_huge", changed(WORDPIECE, (added + (4,), token("x", 10**9))), "has the id 1000000000"
    yield "added_no_content", changed(WORDPIECE, (added + (4,), {"id": 9})), "content"
    yield "added_object", changed(WORDPIECE, (added, {})), "added_tokens"
    # Regular expressions are compared, never run.
    yield "regex_broken", changed(BPE, (("pre_tokenizer",), split_by("("))), "pre_tokenizer splits by \"(\""
    yield "regex_catastrophic", changed(BPE, (("pre_tokenizer",), split_by("(a+)+$"))), "pre_tokenizer splits by \"(a+)+$\""
    yield "split_removed", changed(BPE, (("pre_tokenizer",), split_by(LLAMA3, "Removed"))), "behavior Isolated"
    # Kinds that are not known.
    yield "model_foo", changed(BPE, (("model", "type"), "FOO")), "model of type \"FOO\" is not known; known are WordPiece, BPE, Unigram"
    yield "model_missing", changed(BPE, (("model",), KeyError)), "model"
    yield "model_no_type", changed(BPE, (("model", "type"), KeyError)), "type"
    yield "model_list", changed(BPE, (("model",), [])), "model"
    yield "model_null", changed(BPE, (("model",), None)), "model"
    yield "normalizer_foo", changed(WORDPIECE, (("normalizer", "type"), "Foo")), "normalizer for WordPiece of type \"Foo\" is not known"
    yield "normalizer_bpe", changed(BPE, (("normalizer",), {"type": "Lowercase"})), "of type \"Lowercase\" is not known"
    yield "normalizer_in_sequence", changed(UNIGRAM, (("normalizer",), {"type": "Sequence", "normalizers": [{"type": "NFKC"}]})), "\"NFKC\" is not known"
    yield "normalizer_string", changed(BPE, (("normalizer",), "NFC")), "normalizer is"
    yield "pre_tokenizer_foo", changed(WORDPIECE, (("pre_tokenizer", "type"), "Foo")), "pre_tokenizer for WordPiece of type \"Foo\" is not known"
    yield "pre_tokenizer_null", changed(BPE, (("pre_tokenizer",), None)), "no ByteLevel step"
    yield "pre_tokenizer_prefix_space", changed(BPE, (("pre_tokenizer", "add_prefix_space"), True)), "add_prefix_space"
    yield "pre_tokenizer_whitespace", changed(BPE, (("pre_tokenizer",), {"type": "Whitespace"})), "\"Whitespace\" is not known"
    yield "post_processor_foo", changed(WORDPIECE, (("post_processor", "type"), "Foo")), "post_processor of type \"Foo\" is not known"
    yield "post_processor_id", changed(WORDPIECE, (("post_processor", "special_tokens", "[CLS]", "ids"), [99])), "token id 99"
    yield "post_processor_no_text", changed(WORDPIECE, (("post_processor", "single"), [])), "must hold the sequence A once"
    yield "post_processor_undeclared", changed(WORDPIECE, (("post_processor", "special_tokens"), {})), "[CLS]"
    yield "decoder_foo", changed(BPE, (("decoder",), {"type": "Foo"})), "\"Foo\" is not known"
    yield "byte_fallback", changed(UNIGRAM, (("model", "byte_fallback"), True)), "byte_fallback"
    yield "dropout", changed(BPE, (("model", "dropout"), 0.1)), "dropout"
    yield "unk_not_there", changed(WORDPIECE, (("model", "unk_token"), "[NO]")), "[NO]"
    yield "unk_id_beyond", changed(UNIGRAM, (("model", "unk_id"), 6)), "unk_id"
    yield "unk_id_null", changed(UNIGRAM, (("model", "unk_id"), None)), "unk_id"
    yield "unigram_score_string", changed(UNIGRAM, (vocab + (4, 1), "x")), "model.vocab[4]"
    yield "unigram_piece_twice", changed(UNIGRAM, (vocab + (5, 0), "a")), "\"a\" is given twice"
    yield "unigram_empty", changed(UNIGRAM, (vocab, [])), "vocab"
    yield "charsmap_not_base64", changed(UNIGRAM, (("normalizer",), {"type": "Precompiled", "precompiled_charsmap": "####"})), "base64"
    yield "charsmap_cut", changed(UNIGRAM, (("normalizer",), {"type": "Precompiled", "precompiled_charsmap": "/////w=="})), "precompiled_charsmap"
    yield "charsmap_loops", changed(UNIGRAM, (("normalizer",), {"type": "Precompiled", "precompiled_charsmap": "BAAAAAD//38A"})), ""
    yield "root_list", [], "an object is allowed"
    text = json.dumps(BPE)
    yield "cut", text[:len(text) // 2], ""
    yield "empty", "", ""
    yield "deep", "[" * 100000, ""
    yield "vocab_key_twice", text.replace('"b": 1', '"a": 1'), "given twice"


# GGUF, little-endian, version 3.
U8, I32, F32, BOOL, STRING, ARRAY, U32 = 0, 5, 6, 7, 8, 9, 4
FORMATS = {U8: "<B", I32: "<i", F32: "<f", BOOL: "<?", U32: "<I"}


def gguf_string(text):
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def gguf_scalar(kind, value):
    return gguf_string(value) if kind == STRING else struct.pack(FORMATS[kind], value)


def gguf(entries):
    out = b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries))
    for key, kind, value in entries:
        out += gguf_string(key)
        if isinstance(value, list):
            out += struct.pack("<IIQ", ARRAY, kind, len(value)) + b"".join(gguf_scalar(kind, x) for x in value)
        else:
            out += struct.pack("<I", kind) + gguf_scalar(kind, value)
    return out


def gguf_cases():
    def case(*edits, without=()):
        entries = {"tokenizer.ggml.model": (STRING, "gpt2"), "tokenizer.ggml.pre": (STRING, "gpt-2"),
                   "tokenizer.ggml.tokens": (STRING, ["a", "b", "ab", "<|end|>"]), "tokenizer.ggml.token_type": (I32, [1, 1, 1, 3]),
                   "tokenizer.ggml.merges": (STRING, ["a b"]), "tokenizer.ggml.bos_token_id": (U32, 3)}
        for key, kind, value in edits:
            entries["tokenizer." + key] = (kind, value)
        for key in without:
            del entries["tokenizer.ggml." + key]
        return gguf([(key, kind, value) for key, (kind, value) in entries.items()])

    tokens, types, scores = "ggml.tokens", "ggml.token_type", "ggml.scores"
    yield "good", case(), ""
    for name, piece in [("minus", "<0x-1>"), ("letters", "<0xZZ>"), ("long", "<0x100>")]:
        yield "byte_token_" + name, case((tokens, STRING, ["a", "b", "ab", piece]), (types, I32, [1, 1, 1, 6])), "tokenizer.ggml.tokens[3] is \"" + piece + "\""
    yield "bos_beyond", case(("ggml.bos_token_id", U32, 4)), "tokenizer.ggml.bos_token_id"
    yield "scores_uint8", case((scores, U8, [0, 0, 0, 0])), "tokenizer.ggml.scores"
    yield "types_uint8_of_17", case((types, U8, [1, 1, 1, 17])), "tokenizer.ggml.token_type"
    yield "scores_short", case((scores, F32, [0.0] * 3)), "tokenizer.ggml.scores has 3 entries, but tokenizer.ggml.tokens has 4"
    yield "types_short", case((types, I32, [1])), "tokenizer.ggml.token_type has 1 entries"
    yield "type_beyond", case((types, I32, [1, 1, 9, 3])), "tokenizer.ggml.token_type"
    yield "tokens_scalar", case((tokens, STRING, "a")), "tokenizer.ggml.tokens"
    yield "tokens_missing", case(without=["tokens"]), "tokenizer.ggml.tokens"
    yield "tokens_empty", case((tokens, STRING, []), (types, I32, [])), "tokenizer.ggml.tokens is empty"
    yield "token_not_utf8", case((tokens, STRING, ["a", "b", "ab", b"\xff"])), "tokenizer.ggml.tokens[3] is not valid UTF-8"
    yield "token_twice", case((tokens, STRING, ["a", "b", "ab", "a"])), "\"a\" is given twice"
    yield "control_token_empty", case((tokens, STRING, ["a", "b", "ab", ""])), "tokenizer.ggml.tokens[3] is empty"
    yield "merge_unknown", case(("ggml.merges", STRING, ["a b", "b b"])), "merge 1"
    yield "merges_missing", case(without=["merges"]), "tokenizer.ggml.merges"
    yield "model_llama", case(("ggml.model", STRING, "llama")), "tokenizer.ggml.model \"llama\" is not known"
    yield "pre_unknown", case(("ggml.pre", STRING, "deepseek-llm")), "tokenizer.ggml.pre \"deepseek-llm\" is not known"
    yield "pre_missing", case(without=["pre"]), "tokenizer.ggml.pre"
    yield "bos_wanted_but_missing", case(("ggml.add_bos_token", BOOL, True), without=["bos_token_id"]), "tokenizer.ggml.bos_token_id is missing"


def main(folder):
    expected = []
    for kind, cases in (("json", json_cases()), ("gguf", gguf_cases())):
        os.makedirs(os.path.join(folder, kind), exist_ok=True)
        for name, content, message in cases:
            if not isinstance(content, (str, bytes)):
                content = json.dumps(content, ensure_ascii=False)
            data = content if isinstance(content, bytes) else content.encode()
            with open(os.path.join(folder, kind, name), "wb") as file:
                file.write(data)
            verdict = "good" if name.startswith("good") or name == "charsmap_loops" else "bad"
            expected.append("\t".join([kind, name, verdict, message]))
    with open(os.path.join(folder, "expected.tsv"), "w", encoding="utf-8") as file:
        file.write("\n".join(expected) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
