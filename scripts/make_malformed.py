#!/usr/bin/env python3
"""Writes files that are broken in every known way, and some odd ones that are not, for the tests of the readers.

    scripts/make_malformed.py FOLDER

FOLDER/cases.tsv lists them: file, reader (safetensors, gguf, json, folder, e5, npz), verdict (ok or error) and a part of
the message that an error must have. Only the standard library is used. The classes of faults are those that readers of
these formats have had; each case says what it is by its name.
"""
import io
import json
import os
import struct
import sys
import zipfile

ROOT = sys.argv[1] if len(sys.argv) == 2 else sys.exit(__doc__)
CASES = []


def case(reader, name, data, error=None):
    """error: a part of the expected message; None: the file must load."""
    path = os.path.join(reader, name)
    os.makedirs(os.path.join(ROOT, reader), exist_ok=True)
    if data is not None:
        with open(os.path.join(ROOT, path), "wb") as file:
            file.write(data)
    CASES.append((path, reader, "ok" if error is None else "error", error or ""))


def u8(x): return struct.pack("<B", x)
def u16(x): return struct.pack("<H", x)
def u32(x): return struct.pack("<I", x)
def i32(x): return struct.pack("<i", x)
def u64(x): return struct.pack("<Q", x)
def f32(x): return struct.pack("<f", x)


# --- safetensors ---------------------------------------------------------------------------------------------------

def safetensors(header, data=b"", size=None):
    if not isinstance(header, bytes):
        header = json.dumps(header).encode()
    return u64(len(header) if size is None else size) + header + data


def entry(shape, begin, end, dtype="F32", **more):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end], **more}


def make_safetensors():
    def add(name, header, data=b"", error=None, size=None):
        case("safetensors", name, safetensors(header, data, size), error)

    good = {"a": entry([2, 3], 0, 24), "b": entry([], 24, 28), "c": entry([0, 5], 28, 28)}
    add("good", good, bytes(28))
    add("good_leading_space", b"  " + json.dumps(good).encode(), bytes(28))
    add("good_out_of_order", {"b": good["b"], "c": good["c"], "a": good["a"]}, bytes(28))
    add("good_without_tensors", {})
    add("good_metadata", {"__metadata__": {"format": "pt"}, **good}, bytes(28))
    add("good_unknown_field", {"a": entry([1], 0, 4, colour={"deep": [1, "x", None]})}, bytes(4))
    add("good_name_like_a_path", {"../x": entry([1], 0, 4)}, bytes(4))
    case("safetensors", "empty", b"", "has 0 bytes")
    case("safetensors", "seven_bytes", bytes(7), "has 7 bytes")
    add("length_2_63", b"{}", size=2**63, error="at most 100000000")
    add("length_one_too_many", b"{}", size=3, error="cut short")
    add("length_0", b"", error="header is empty")
    add("header_is_array", b"[1]", error="must be an object")
    add("header_is_number", b"1", error="must be an object")
    add("trailing_nul", b"{}\0", error="NUL")
    add("byte_order_mark", b"\xef\xbb\xbf{}", error="byte order mark")
    add("invalid_utf8_in_name", b'{"\xff":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}', bytes(4), "column 3")
    add("lone_surrogate_in_name", b'{"\\ud800":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}', bytes(4), "column ")
    add("not_json", b"{'a': 1}", error="not valid JSON")
    twice = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[%s]}}'
    add("tensor_twice_same_offsets", twice % b"0,4", bytes(4), "duplicate tensor \"a\"")
    add("tensor_twice_other_offsets", twice % b"4,8", bytes(8), "duplicate tensor \"a\"")
    add("overlap", {"a": entry([2], 0, 8), "b": entry([2], 4, 12)}, bytes(12), "overlaps")
    add("same_bytes_twice", {"a": entry([2], 0, 8), "b": entry([2], 0, 8)}, bytes(8), "overlaps")
    add("hole", {"a": entry([1], 0, 4), "b": entry([1], 8, 12)}, bytes(12), "hole")
    add("hole_at_start", {"a": entry([1], 4, 8)}, bytes(8), "hole")
    add("bytes_after_last", {"a": entry([1], 0, 4)}, bytes(5), "1 bytes follow")
    add("one_byte_short", {"a": entry([1], 0, 4)}, bytes(3), "holds only 3")
    add("elements_wrap", {"a": entry([2, 2**64 - 2], 0, 4)}, bytes(4), "not a whole number")
    add("elements_overflow", {"a": entry([2**33, 2**33], 0, 0)}, b"", "too many elements")
    add("bytes_overflow", {"a": entry([2**62], 0, 0)}, b"", "too many elements")
    add("overflow_hidden_by_zero", {"a": entry([2**40, 2**40, 0], 0, 0)}, b"", "too many elements")
    add("shape_negative", {"a": entry([-1], 0, 4)}, bytes(4), "not a whole number")
    add("shape_float", {"a": entry([1.0], 0, 4)}, bytes(4), "not a whole number")
    add("shape_string", {"a": entry(["1"], 0, 4)}, bytes(4), "a string in shape")
    add("shape_nested", {"a": entry([[1]], 0, 4)}, bytes(4), "an array in shape")
    add("shape_number", {"a": entry(1, 0, 4)}, bytes(4), "a number in shape")
    add("shape_40_dimensions", {"a": entry([1] * 40, 0, 4)}, bytes(4), "more than 32 dimensions")
    add("offsets_backwards", {"a": entry([1], 4, 0)}, bytes(4), "before it begins")
    add("offsets_three", {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 8]}}, bytes(4), "has 3 data_offsets")
    add("offsets_none", {"a": {"dtype": "F32", "shape": [1], "data_offsets": []}}, bytes(4), "has 0 data_offsets")
    add("offsets_negative", {"a": entry([1], -1, 3)}, bytes(4), "not a whole number")
    add("offsets_2_64", b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551616]}}', bytes(4), "not a whole number")
    add("columns_without_rows", {"a": entry([0, 2**62], 0, 0)}, b"", "too many elements")
    add("bytes_not_of_shape", {"a": entry([2], 0, 4)}, bytes(4), "need 8")
    add("dtype_unknown", {"a": entry([1], 0, 4, "F33")}, bytes(4), "F32, F64")
    add("dtype_f4_odd", {"a": entry([3], 0, 2, "F4")}, bytes(2), "F4")
    add("dtype_number", {"a": {"dtype": 1, "shape": [1], "data_offsets": [0, 4]}}, bytes(4), "a number in dtype")
    add("dtype_missing", {"a": {"shape": [1], "data_offsets": [0, 4]}}, bytes(4), "has no dtype")
    add("dtype_twice", b'{"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}}', bytes(4), "dtype twice")
    add("tensor_is_number", {"a": 1}, b"", "must be an object")
    add("tensor_is_null", {"a": None}, b"", "must be an object")
    add("tensor_is_array", {"a": [1]}, b"", "must be an object")
    add("metadata_number", {"__metadata__": {"a": 1}}, b"", "must be a string")
    add("metadata_nested", {"__metadata__": {"a": {}}}, b"", "must be a string")
    add("metadata_array", {"__metadata__": []}, b"", "must be an object")
    add("metadata_string", {"__metadata__": "a"}, b"", "must be an object")
    add("metadata_twice", b'{"__metadata__":{},"__metadata__":{}}', b"", "given twice")
    add("name_with_nul", {"a\0b": entry([1], 0, 4)}, bytes(4), "NUL")
    add("name_of_1_mb", {"a" * 1_000_000: entry([1], 0, 4)}, bytes(4), "at most 4096")
    add("nested_100000", b"[" * 100_000, b"", "must be an object")
    add("nested_100000_in_field", b'{"a":{"x":' + b"[" * 100_000, b"", "nested deeper")
    many = ",".join('"tensor.%07d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}' % i for i in range(1_000_000))
    add("good_million_tensors", ("{" + many + "}").encode())


# --- GGUF ----------------------------------------------------------------------------------------------------------

U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARR, U64, I64, F64 = range(13)


def text(s):
    s = s if isinstance(s, bytes) else s.encode()
    return u64(len(s)) + s


def kv(key, kind, value):
    return text(key) + u32(kind) + value


def info(name, dims, kind=0, offset=0):
    return text(name) + u32(len(dims)) + b"".join(u64(d) for d in dims) + u32(kind) + u64(offset)


def gguf(kvs=(), infos=(), data=b"", version=3, n_tensors=None, n_kv=None, alignment=32):
    head = b"GGUF" + u32(version) + u64(len(infos) if n_tensors is None else n_tensors)
    head += u64(len(kvs) if n_kv is None else n_kv) + b"".join(kvs) + b"".join(infos)
    return head + bytes(-len(head) % alignment) + data


def make_gguf():
    def add(name, data, error=None):
        case("gguf", name, data, error)

    add("good_v2", gguf([kv("a", U8, u8(1))], [info("t", [4, 2])], bytes(32), version=2))
    add("good_v3", gguf([kv("a", STR, text("x"))], [info("t", [32, 2], 8), info("u", [3], 0, 96)], bytes(108)))
    add("good_alignment_64", gguf([kv("general.alignment", U32, u32(64))], [info("t", [4]), info("u", [4], 0, 64)],
                                  bytes(80), alignment=64))
    add("good_scalar", gguf([], [info("t", [])], bytes(4)))
    add("good_empty_tensor", gguf([], [info("t", [0, 7])], b""))
    add("good_no_tensors", gguf())
    add("good_empty_array", gguf([kv("a", ARR, u32(STR) + u64(0))]))
    add("good_padding_after_last", gguf([], [info("t", [4])], bytes(32)))
    add("empty", b"", "not a GGUF file")
    add("three_bytes", b"GGU", "not a GGUF file")
    add("magic", b"FUGG" + gguf()[4:], "not a GGUF file")
    add("magic_alone", b"GGUF", "the version")
    for version in (0, 1, 4):
        add("version_%d" % version, gguf(version=version), "version %d" % version)
    add("big_endian", gguf(version=0x03000000), "big-endian")
    add("tensors_2_31", gguf(n_tensors=2**31) + bytes(76), "tensors do not fit")
    add("tensors_2_63", gguf(n_tensors=2**63 - 1) + bytes(76), "tensors do not fit")
    add("keys_2_40", gguf(n_kv=2**40) + bytes(76), "keys do not fit")
    for size, word in ((2**64 - 1, "2_64_1"), (2**64 - 8, "2_64_8"), (2**30, "2_30")):
        add("key_length_" + word, gguf([u64(size) + b"abc" + u32(U8) + u8(1)]), "bytes; 1 to 65535")
        add("string_length_" + word, gguf([kv("a", STR, u64(size) + b"abc")]), "offset")
        add("name_length_" + word, gguf([], [u64(size) + bytes(40)]), "offset")
    add("array_2_61", gguf([kv("a", ARR, u32(U32) + u64(2**61))]), "entries, but only")
    add("array_of_strings_2_61", gguf([kv("a", ARR, u32(STR) + u64(2**61))]), "entries, but only")
    add("array_nested_100000", gguf([kv("a", ARR, (u32(ARR) + u64(1)) * 100_000)]), "array of arrays")
    add("array_of_type_99", gguf([kv("a", ARR, u32(99) + u64(1) + bytes(8))]), "unknown type 99")
    add("value_of_type_99", gguf([kv("a", 99, bytes(8))]), "unknown type 99")
    add("bool_2", gguf([kv("a", BOOL, u8(2))]), "0 or 1")
    add("bool_2_in_array", gguf([kv("a", ARR, u32(BOOL) + u64(2) + b"\1\2")]), "0 or 1")
    add("key_not_ascii", gguf([kv(b"\xff\xfe", U8, u8(1))]), "ASCII")
    add("key_empty", gguf([kv("", U8, u8(1))]), "1 to 65535")
    add("key_with_nul", gguf([kv("a\0b", U8, u8(1))]), "ASCII")
    add("key_twice", gguf([kv("a", U8, u8(1)), kv("b", U8, u8(1)), kv("a", U8, u8(1))]), "\"a\" is given twice")
    add("tensor_twice", gguf([], [info("t", [4]), info("t", [4], 0, 32)], bytes(64)), "\"t\" is given twice")
    add("names_differ_after_nul", gguf([], [info("t\0a", [4]), info("t\0b", [4], 0, 32)], bytes(64)), "control character")
    for value in (0, 3, 2**31):
        add("alignment_%d" % value, gguf([kv("general.alignment", U32, u32(value))]), "a power of two")
    add("alignment_int32", gguf([kv("general.alignment", I32, u32(32))]), "of type UINT32")
    add("alignment_array", gguf([kv("general.alignment", ARR, u32(U32) + u64(0))]), "of type UINT32")
    add("dims_5", gguf([], [info("t", [1] * 5)], bytes(4)), "at most 4")
    add("dims_2_32", gguf([], [text("t") + u32(2**32 - 1) + bytes(40)]), "at most 4")
    add("dim_negative", gguf([], [info("t", [2**64 - 1])], bytes(4)), "2^63-1")
    add("elements_2_66", gguf([], [info("t", [2**33, 2**33])]), "too many elements")
    add("columns_without_rows", gguf([], [info("t", [2**62, 0])]), "too many elements")
    add("elements_wrap_to_0", gguf([], [info("t", [2**32, 2**32])]), "too many elements")
    add("padding_wraps", gguf([], [info("t", [2**62 - 1]), info("u", [4])], bytes(16)), "too many elements")
    add("sizes_wrap", gguf([], [info("t", [0x7fffffffffffffc0], 24), info("u", [0x7fffffffffffffc0], 24, 0x7fffffffffffffc0)],
                           bytes(64)), "the file holds only")
    add("q4_1_row_33", gguf([], [info("t", [33], 3)], bytes(40)), "multiple of 32")
    add("q4_k_row_32", gguf([], [info("t", [32], 12)], bytes(144)), "multiple of 256")
    add("q4_0_scalar", gguf([], [info("t", [], 2)], bytes(18)), "multiple of 32")
    for kind in (4, 999):
        add("type_%d" % kind, gguf([], [info("t", [32], kind)], bytes(40)), "\"t\" has type %d" % kind)
    add("type_q2_k", gguf([], [info("t", [256], 10)], bytes(84)), "type 10 (Q2_K)")
    add("offset_1", gguf([], [info("t", [4], 0, 1)], bytes(32)), "\"t\" lies at data offset 1")
    add("offset_2_40", gguf([], [info("t", [4], 0, 2**40)], bytes(32)), "\"t\" needs")
    add("offset_near_2_64", gguf([], [info("t", [4], 0, 2**64 - 32)], bytes(32)), "\"t\" needs")
    add("overlap", gguf([], [info("t", [16]), info("u", [16], 0, 32)], bytes(96)), "\"u\" overlaps")
    add("same_offset", gguf([], [info("t", [4]), info("u", [4])], bytes(32)), "\"u\" overlaps")
    add("hole", gguf([], [info("t", [4]), info("u", [4], 0, 64)], bytes(80)), "\"u\" leaves a hole")
    add("hole_at_start", gguf([], [info("t", [4], 0, 32)], bytes(48)), "\"t\" leaves a hole")
    add("one_byte_short", gguf([], [info("t", [4])], bytes(15)), "\"t\" needs 16")
    whole = gguf([kv("a", STR, text("value"))], [info("t", [4])], bytes(16))
    for cut in range(4, 92, 7):
        add("cut_at_%02d" % cut, whole[:cut], "offset" if cut < 86 else "")
    add("good_100000_tensors", gguf([], [info("t%d" % i, [0]) for i in range(100_000)]))
    add("good_60000_keys", gguf([kv("k%d" % i, U8, u8(1)) for i in range(60_000)]))


# --- JSON ----------------------------------------------------------------------------------------------------------

def make_json():
    def add(name, data, error=None):
        case("json", name, data, error)

    add("good", b'{"a": [1, -2, 3.5, "x", null, true, {"b": {}}]}\n')
    add("good_64_deep", b"[" * 64 + b"]" * 64)
    add("empty", b"", "not valid JSON")
    add("cut", b'{"a": [1, 2', "not valid JSON")
    add("deep_65", b"[" * 65 + b"]" * 65, "nested deeper than 64")
    add("deep_100000", b"[" * 100_000, "nested deeper than 64")
    add("deep_100000_objects", b'{"a":' * 100_000, "nested deeper than 64")
    add("field_twice", b'{"a": 1,\n "b": 2, "a": 1}', "\"a\" is given twice (line 2")
    add("field_twice_nested", b'[{"a": {"b": 1, "b": 2}}]', "\"b\" is given twice")
    add("byte_order_mark", b"\xef\xbb\xbf{}", "byte order mark")
    add("utf16", "{}".encode("utf-16"), "NUL")
    add("nul_after", b"{}\0", "NUL")
    add("invalid_utf8", b'{"a": "\xff"}', "column 8")
    add("overlong_utf8", b'{"a": "\xc0\xaf"}', "not valid JSON")
    add("lone_surrogate", b'{"a": "\\ud800"}', "not valid JSON")
    add("text_after", b"{} x", "not valid JSON")
    add("comment", b"{} // x", "not valid JSON")
    add("nan", b'{"a": NaN}', "not valid JSON")
    add("infinity", b'{"a": -Infinity}', "not valid JSON")
    add("number_1e999", b'{"a": 1e999}', "not valid JSON")
    add("single_quotes", b"{'a': 1}", "not valid JSON")
    add("trailing_comma", b"[1,]", "not valid JSON")


# --- model folders -------------------------------------------------------------------------------------------------

def make_folders():
    one = safetensors({"a": entry([1], 0, 4)}, bytes(4))
    two = safetensors({"b": entry([1], 0, 4)}, bytes(4))

    def add(name, index, files, error=None, link=None):
        folder = os.path.join(ROOT, "folder", name)
        os.makedirs(folder)
        for file, data in files.items():
            with open(os.path.join(folder, file), "wb") as out:
                out.write(data)
        if link:
            os.symlink(link[1], os.path.join(folder, link[0]))
        if index is not None:
            body = index if isinstance(index, bytes) else json.dumps({"weight_map": index}).encode()
            with open(os.path.join(folder, "model.safetensors.index.json"), "wb") as out:
                out.write(body)
        case("folder", name, None, error)

    os.makedirs(os.path.join(ROOT, "folder"), exist_ok=True)
    with open(os.path.join(ROOT, "folder", "outside.safetensors"), "wb") as out:
        out.write(one)
    add("good", {"a": "1.safetensors", "b": "2.safetensors"}, {"1.safetensors": one, "2.safetensors": two})
    add("good_link_inside", {"a": "1.safetensors"}, {"x": one}, None, ("1.safetensors", "x"))
    add("shard_up", {"a": "../outside.safetensors"}, {}, "plain name")
    add("shard_absolute", {"a": os.path.abspath(os.path.join(ROOT, "folder", "outside.safetensors"))}, {}, "plain name")
    add("shard_below", {"a": "x/1.safetensors"}, {}, "plain name")
    add("shard_dots", {"a": ".."}, {}, "plain name")
    add("shard_number", {"a": 1}, {}, "plain name")
    add("shard_link_out", {"a": "1.safetensors"}, {}, "outside the model's folder", ("1.safetensors", "../outside.safetensors"))
    add("weights_link_out", None, {}, "outside the model's folder", ("model.safetensors", "../outside.safetensors"))
    add("config_link_out", None, {}, "outside the model's folder", ("config.json", "../outside.safetensors"))
    add("link_dangles", {"a": "1.safetensors"}, {}, "cannot be opened", ("1.safetensors", "nowhere"))
    add("link_to_itself", {"a": "1.safetensors"}, {}, "cannot be opened", ("1.safetensors", "1.safetensors"))
    add("shard_missing", {"a": "1.safetensors"}, {}, "missing")
    add("tensor_listed_twice", b'{"weight_map": {"a": "1.safetensors", "a": "1.safetensors"}}', {"1.safetensors": one}, "given twice")
    add("tensor_in_two_shards", {"a": "1.safetensors", "b": "2.safetensors"},
        {"1.safetensors": one, "2.safetensors": safetensors({"a": entry([1], 0, 4), "b": entry([1], 4, 8)}, bytes(8))},
        "in another shard too")
    add("tensor_not_in_shard", {"a": "1.safetensors", "z": "1.safetensors"}, {"1.safetensors": one}, "\"z\" is not in")
    add("map_missing", b"{}", {}, "weight_map")
    add("map_array", b'{"weight_map": []}', {}, "weight_map")
    add("shard_damaged", {"a": "1.safetensors"}, {"1.safetensors": one[:-1]}, "holds only 3")
    add("config_damaged", None, {"config.json": b"{"}, "not valid JSON")


# --- the e5 container ----------------------------------------------------------------------------------------------

def e5(sizes=(32, 1, 2, 64, 6, 4, 2), eps=1e-12, block=32, ids=(0, 2, 1, 3), pieces=("<s>", "<pad>", "</s>", "<unk>", "\u2581a"),
       offsets=None, scores=None, count=None, blob_size=None, records=((0x41, (0x61,)), (0xad, ())), record_count=None,
       record_bytes=None, tensors=None, tensor_count=None, version=1, magic=b"E5S1", tail=b""):
    head = magic + u32(version) + b"".join(i32(x) for x in sizes) + f32(eps) + i32(block)
    raw = [p if isinstance(p, bytes) else p.encode() for p in pieces]
    blob = b"".join(raw)
    ends = [0]
    for piece in raw:
        ends.append(ends[-1] + len(piece))
    head += i32(len(raw) if count is None else count) + b"".join(i32(x) for x in ids)
    head += u64(len(blob) if blob_size is None else blob_size) + b"".join(u32(x) for x in (offsets or ends))
    head += b"".join(f32(x) for x in (scores or [-1.0] * len(raw))) + blob
    body = b"".join(u32(a) + u8(len(b)) + b"".join(u32(x) for x in b) for a, b in records)
    head += i32(len(records) if record_count is None else record_count) + u32(len(body) if record_bytes is None else record_bytes) + body
    if tensors is None:
        tensors = [("emb.ln.w", 0, 32, None, 128), ("l0.fi.w", 1, 2048, None, 1152), ("l0.q.b", 0, 32, None, 128)]
    directory = i32(len(tensors) if tensor_count is None else tensor_count)
    size = len(head) + 4 + sum(23 + len(t[0]) for t in tensors)
    at = size
    for name, kind, elements, offset, length in tensors:
        at = -(-at // 64) * 64
        directory += u16(len(name)) + name.encode() + u8(kind) + u32(elements) + u64(at if offset is None else offset) + u64(length)
        at += length if length < 10_000 else 0
    return head + directory + bytes(at - size) + tail


def make_e5():
    def add(name, error=None, **fields):
        case("e5", name, e5(**fields), error)

    add("good")
    add("magic", "not an E5S1 file", magic=b"E5S2")
    add("version_2", "version 2", version=2)
    add("block_64", "blocks of 64", block=64)
    add("width_0", "the width is 0", sizes=(0, 1, 2, 64, 6, 4, 2))
    add("width_negative", "the width is -1", sizes=(-1, 1, 2, 64, 6, 4, 2))
    add("width_2_30", "the width is", sizes=(2**30, 1, 2, 64, 6, 4, 2))
    add("heads_0", "heads is 0", sizes=(32, 1, 0, 64, 6, 4, 2))
    add("heads_3", "no multiple", sizes=(32, 1, 3, 64, 6, 4, 2))
    add("eps_0", "epsilon", eps=0.0)
    add("eps_nan", "epsilon", eps=float("nan"))
    add("pieces_2_30", "the number of pieces", count=2**30)
    add("pieces_beyond_embeddings", "only 4 embeddings", sizes=(32, 1, 2, 64, 4, 4, 2))
    add("pieces_beyond_file", "offset", sizes=(32, 1, 2, 64, 2**20, 4, 2), count=2**20)
    add("special_out_of_range", "special piece 5", ids=(0, 2, 1, 5))
    add("special_negative", "special piece", ids=(0, 2, -1, 3))
    add("blob_2_63", "the pieces needs", blob_size=2**63)
    add("offsets_backwards", "ends outside", offsets=[0, 5, 3, 9, 17, 21])
    add("offsets_beyond", "ends outside", offsets=[0, 3, 8, 12, 17, 2**32 - 1])
    add("offsets_start", "begin at 0", offsets=[1, 3, 8, 12, 17, 21])
    add("offsets_short", "follow the last piece", offsets=[0, 3, 8, 12, 17, 17])
    add("piece_invalid_utf8", "not valid UTF-8", pieces=("<s>", "<pad>", "</s>", "<unk>", b"\xff"))
    add("piece_surrogate", "not valid UTF-8", pieces=("<s>", "<pad>", "</s>", "<unk>", b"\xed\xa0\x80"))
    add("piece_overlong", "not valid UTF-8", pieces=("<s>", "<pad>", "</s>", "<unk>", b"\xc0\xaf"))
    add("score_nan", "no finite score", scores=[-1.0, -1.0, float("nan"), -1.0, -1.0])
    add("score_infinite", "no finite score", scores=[-1.0, -1.0, float("-inf"), -1.0, -1.0])
    add("records_2_24", "do not fit", record_count=2**24)
    add("records_bytes_wrong", "another length", record_bytes=13)
    add("records_bytes_beyond", "do not fit", record_bytes=2**31)
    add("records_unsorted", "rising order", records=((0x42, (0x61,)), (0x41, ())))
    add("record_twice", "rising order", records=((0x42, (0x61,)), (0x42, ())))
    add("record_from_surrogate", "not a code point", records=((0xd800, ()),))
    add("record_to_beyond", "not a code point", records=((0x41, (0x110000,)),))
    add("tensors_2_24", "do not fit", tensor_count=2**24)
    add("tensors_negative", "number of tensors", tensor_count=-1)
    add("tensor_unknown", "\"x.y\" is not a tensor", tensors=[("x.y", 0, 32, None, 128)])
    add("tensor_layer_1", "is not a tensor", tensors=[("l1.q.w", 1, 1024, None, 576)])
    add("tensor_layer_01", "is not a tensor", tensors=[("l00.q.w", 1, 1024, None, 576)])
    add("tensor_layer_huge", "is not a tensor", tensors=[("l99999999999999999999.q.w", 1, 1024, None, 576)])
    add("tensor_norm_twice", "given twice", tensors=[("emb.ln.w", 0, 32, None, 128), ("emb.ln.w", 0, 32, None, 128)])
    add("tensor_type_2", "has type 2", tensors=[("emb.ln.w", 2, 32, None, 128)])
    add("tensor_count", "needs 32", tensors=[("emb.ln.w", 0, 31, None, 124)])
    add("tensor_bytes", "needs 32", tensors=[("emb.ln.w", 0, 32, None, 127)])
    add("tensor_beyond", "outside the file", tensors=[("emb.ln.w", 0, 32, 2**40, 128)])
    add("tensor_near_2_64", "outside the file", tensors=[("emb.ln.w", 0, 32, 2**64 - 64, 128)])
    add("tensor_over_header", "overlaps", tensors=[("emb.ln.w", 0, 32, 64, 128)])
    add("tensor_unaligned", "not aligned", tensors=[("emb.ln.w", 0, 32, 65, 128)])
    add("tensor_block_row", "whole number of blocks", sizes=(34, 1, 2, 64, 6, 4, 2), tensors=[("l0.q.w", 1, 1156, None, 650)])
    whole = e5()
    for cut in list(range(0, 300, 23)) + [len(whole) - 1]:
        case("e5", "cut_at_%04d" % cut, whole[:cut], "")


# --- NPZ and NPY ---------------------------------------------------------------------------------------------------

def npy(header, data=b"", version=(1, 0), length=None):
    header = header.encode() if isinstance(header, str) else header
    size = len(header) if length is None else length
    return b"\x93NUMPY" + bytes(version) + (u16(size) if version[0] == 1 else u32(size)) + header + data


def dictionary(descr="'<f4'", order="False", shape="(2,)"):
    return "{'descr': %s, 'fortran_order': %s, 'shape': %s, }\n" % (descr, order, shape)


def npz(members, method=zipfile.ZIP_DEFLATED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return out.getvalue()


def make_npz():
    def add(name, data, error=None):
        case("npz", name, data, error)

    array = npy(dictionary(), bytes(8))
    add("good.npy", array)
    add("good.npz", npz([("q.npy", array), ("k.npy", array)]))
    add("good_stored.npz", npz([("q.npy", array)], zipfile.ZIP_STORED))
    add("good_other_member.npz", npz([("q.npy", array), ("readme.txt", b"x")]))
    add("good_strings.npz", npz([("q.npy", array), ("words.npy", npy(dictionary("'<U3'"), bytes(24)))]))
    add("good_big_endian.npz", npz([("q.npy", npy(dictionary("'>f4'"), bytes(8)))]))
    add("good_records.npz", npz([("q.npy", npy(dictionary("[('x', '<f4'), ('y', '<i4')]"), bytes(16)))]))
    add("good_empty.npz", npz([]))
    add("good_scalar.npy", npy(dictionary(shape="()"), bytes(4)))
    add("good_version_2.npy", npy(dictionary(), bytes(8), (2, 0)))
    add("empty", b"", "neither an NPZ nor an NPY")
    add("text", b"hello", "neither an NPZ nor an NPY")
    add("pk_alone", b"PK", "zip archive")
    good = npz([("q.npy", array)])
    add("cut.npz", good[:-10], "zip archive")
    add("cut_front.npz", good[20:], "neither")
    broken = bytearray(npz([("q.npy", array)], zipfile.ZIP_STORED))
    broken[broken.find(b"NUMPY") + 70] ^= 1  # inside the numbers
    add("crc.npz", bytes(broken), "damaged")
    broken = bytearray(good)
    broken[45] ^= 0xff
    add("deflate_damaged.npz", bytes(broken), "damaged")
    central = good.rfind(b"PK\1\2")
    for name, offset, value, error in (("encrypted", 8, u16(1), "is encrypted"), ("method_99", 10, u16(99), "method"),
                                       ("size_2_31", 24, u32(2**31), "claims"), ("size_short", 24, u32(5), "damaged"),
                                       ("offset_beyond", 42, u32(2**31), ""), ("packed_beyond", 20, u32(2**30), "")):
        broken = bytearray(good)
        broken[central + offset:central + offset + len(value)] = value
        add(name + ".npz", bytes(broken), error)
    twice = npz([("q.npy", array), ("k.npy", array)]).replace(b"k.npy", b"q.npy")
    add("twice.npz", twice, "\"q\" is given twice")
    add("member_not_npy.npz", npz([("q.npy", b"hello")]), "not an NPY array")
    add("bomb.npz", npz([("q%d.npy" % i, npy(dictionary(shape="(25000000,)"), bytes(100_000_000))) for i in range(2)]),
        "larger than")
    add("magic_alone.npy", b"\x93NUMPY", "the version")
    add("version_9.npy", npy(dictionary(), bytes(8), (9, 0)), "version 9.0")
    add("header_beyond.npy", npy(dictionary(), bytes(8), length=60000), "the header needs")
    add("header_4_gb.npy", npy(dictionary(), bytes(8), (2, 0), 2**32 - 1), "the header needs")
    add("header_empty.npy", npy("", bytes(8)), "the NPY header")
    add("header_garbage.npy", npy("{'descr'", bytes(8)), "the NPY header")
    add("header_code.npy", npy("__import__('os').system('true')", bytes(8)), "the NPY header")
    add("header_twice.npy", npy("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", bytes(8)), "twice")
    add("header_lacks_shape.npy", npy("{'descr': '<f4', 'fortran_order': False}", bytes(8)), "lacks")
    add("header_order.npy", npy(dictionary(order="Maybe"), bytes(8)), "neither True nor False")
    add("header_text_after.npy", npy(dictionary() + "x", bytes(8)), "text after")
    add("header_list_open.npy", npy("{'descr': " + "[" * 50_000, bytes(8)), "ends inside descr")
    add("shape_negative.npy", npy(dictionary(shape="(-1,)"), bytes(8)), "whole numbers")
    add("shape_2_64.npy", npy(dictionary(shape="(18446744073709551616,)"), bytes(8)), "whole numbers")
    add("columns_without_rows.npy", npy(dictionary(shape="(0, %d)" % 2**62)), "too many elements")
    add("shape_wraps.npy", npy(dictionary(shape="(4294967296, 4294967296)"), bytes(8)), "too many elements")
    add("shape_float.npy", npy(dictionary(shape="(2.0,)"), bytes(8)), "the NPY header")
    add("shape_40.npy", npy(dictionary(shape="(" + "1," * 40 + ")"), bytes(4)), "32 dimensions")
    add("one_byte_short.npy", npy(dictionary(), bytes(7)), "needs 8 bytes")
    add("one_byte_long.npy", npy(dictionary(), bytes(9)), "needs 8 bytes")


make_safetensors()
make_gguf()
make_json()
make_folders()
make_e5()
make_npz()
with open(os.path.join(ROOT, "cases.tsv"), "w") as table:
    for row in CASES:
        table.write("\t".join(row) + "\n")
print("%d cases in %s" % (len(CASES), ROOT))
