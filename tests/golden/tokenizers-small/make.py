"""Makes the small tokenizers of this folder and their reference cases.

python3 -m venv v && v/bin/pip install tokenizers==0.23.3 sentencepiece==0.2.3 protobuf && v/bin/python make.py
Everything is trained on and made of the test strings in ../tokenizers/smollm2_bpe.jsonl.
"""

import json
import os
import random
import tempfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = WORDS + r"\p{N}{1,3}" + REST
QWEN2 = WORDS + r"\p{N}" + REST


def texts():
    with open(os.path.join(HERE, "../tokenizers/smollm2_bpe.jsonl"), encoding="utf-8") as file:
        out = [json.loads(line)["text"] for line in file]
    out = [text for text in out if len(text) <= 80][::2]
    rng = random.Random(7)
    parts = [" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u0085", "\u2028", "\u3000", "a", "B", "\u00e9", "e\u0301", "\u4e2d", "1", "23", "\u0664",
             "\u00bd", "'s", "'S", "'\u017f", "'ll", "'LL", "'", "!", "...", "\u20ac", "\U0001f600", "\u0301", "\u200d", "\ufb01", "\uff76\uff9e", "_", "\u2581"]
    out += ["".join(rng.choices(parts, k=rng.randint(2, 14))) for _ in range(120)]
    return list(dict.fromkeys(out))


def write(name, lines):
    with open(os.path.join(HERE, name), "w", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")


def split(regex):
    return [pre_tokenizers.Split(Regex(regex), "isolated", False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]


SPLITS = {
    "gpt2": [pre_tokenizers.ByteLevel(add_prefix_space=False)],
    "smollm": [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)],
    "llama3": split(LLAMA3),
    "qwen2": split(QWEN2),
}


def pieces(steps, text):
    """Lengths in bytes of the pieces of the first cut: ByteLevel writes one code point a byte."""
    return [len(piece) for piece, _ in pre_tokenizers.Sequence(steps).pre_tokenize_str(text)]


def train_bpe(name, specials, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(SPLITS[name]) if len(SPLITS[name]) > 1 else SPLITS[name][0]
    tokenizer.decoder = decoders.ByteLevel()
    if name == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(vocab_size=420, show_progress=False, special_tokens=specials,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts(), trainer)
    if name == "llama3":
        bos = tokenizer.token_to_id("<|begin_of_text|>")
        tokenizer.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
                                          special_tokens=[("<|begin_of_text|>", bos)])])
    return tokenizer


def small_charsmap():
    """A precompiled map with single rules, longer rules and one that drops."""
    rules = [("\ufb01", "fi"), ("\uff76\uff9e", "\u30ac"), ("\uff76", "\u30ab"), ("e\u0301", "\u00e9"), ("\t", " "), ("\n", " "), ("\r", " "),
             ("\u00a0", " "), ("\u3000", " "), ("\u2028", " "), ("\u0085", " "), ("\u0001", ""), ("\u200d", ""), ("A", "a"), ("\u00bd", "1\u20442")]
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/rules.tsv", "w", encoding="utf-8") as file:
            for source, target in rules:
                code = lambda s: " ".join("%X" % ord(c) for c in s)
                file.write(code(source) + "\t" + code(target) + "\n")
        with open(folder + "/corpus.txt", "w", encoding="utf-8") as file:
            file.write("\n".join(t.replace("\n", " ").replace("\0", "") for t in texts()))
        sentencepiece.SentencePieceTrainer.train(
            input=folder + "/corpus.txt", model_prefix=folder + "/m", vocab_size=700, model_type="unigram", minloglevel=2,
            normalization_rule_tsv=folder + "/rules.tsv", hard_vocab_limit=False, character_coverage=0.98)
        model = sentencepiece_model_pb2.ModelProto()
        with open(folder + "/m.model", "rb") as file:
            model.ParseFromString(file.read())
        processor = sentencepiece.SentencePieceProcessor(model_file=folder + "/m.model")
    return model, processor


def unigram():
    model, processor = small_charsmap()
    vocab = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    vocab += [(p.piece, p.score) for p in model.pieces if p.type == 1] + [("<mask>", 0.0)]
    tokenizer = Tokenizer(models.Unigram(vocab, unk_id=3, byte_fallback=False))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap),
                                                 normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    return tokenizer, processor, {p.piece: i for i, p in enumerate(model.pieces)}


def main():
    write("pre_split.jsonl", [{"text": text, **{name: pieces(steps, text) for name, steps in SPLITS.items()}} for text in texts()])
    models_made = {
        "bpe_gpt2": train_bpe("gpt2", ["<|endoftext|>"]),
        "bpe_llama3": train_bpe("llama3", ["<|begin_of_text|>", "<|end_of_text|>"], ignore_merges=True),
        "bpe_qwen2": train_bpe("qwen2", ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]),
    }
    special = ["<|endoftext|>x", "a <|im_start|>user\nHi<|im_end|>", "a<|begin_of_text|> b", "<s>a</s>", "a <mask> b", "x<mask>", "<unk>"]
    for name, tokenizer in models_made.items():
        tokenizer.save(os.path.join(HERE, name + ".json"), pretty=False)
        write(name + ".jsonl", [{"text": t, "ids": (e := tokenizer.encode(t)).ids, "offsets": e.offsets,
                                 "decoded": tokenizer.decode(e.ids, skip_special_tokens=False)} for t in texts() + special])
    tokenizer, processor, _ = unigram()
    tokenizer.save(os.path.join(HERE, "unigram.json"), pretty=False)
    lines = []
    for text in texts() + special:
        encoding = tokenizer.encode(text)
        # sentencepiece's own normaliser: the Rust port looks at graphemes and differs on some.
        plain = not any(token in text for token in ("<s>", "</s>", "<unk>", "<mask>", "\u2581"))
        line = {"text": text, "ids": encoding.ids, "tokens": encoding.tokens, "decoded": tokenizer.decode(encoding.ids)}
        words = lambda s: [word for word in s.replace("\u2581", " ").split(" ") if word]
        line["quirk"] = words(processor.normalize(text)) != words(tokenizer.normalizer.normalize_str(text))
        if plain:
            line["normalized"] = processor.normalize(text)
        lines.append(line)
    write("unigram.jsonl", lines)


main()
