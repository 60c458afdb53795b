"""Writes the files of this folder with the packages that define the formats: gguf 0.19.0 (MIT), safetensors 0.8.0
(Apache-2.0) and numpy 2.4.6 (BSD-3-Clause). Usage: python3 make_golden.py FOLDER"""
import os
import sys

import gguf
import numpy as np
from safetensors.numpy import save_file

folder = sys.argv[1]
generator = np.random.default_rng(20240607)
kinds = gguf.GGMLQuantizationType

# Where the f16 fields of a block stand; they get values from subnormal to large, both signs, and zero. All other bits
# are random: every quant, every group scale.
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}

writer = gguf.GGUFWriter(os.path.join(folder, "blocks.gguf"), "test")
writer.add_uint8("t.u8", 200)
writer.add_int8("t.i8", -100)
writer.add_uint16("t.u16", 60000)
writer.add_int16("t.i16", -30000)
writer.add_uint32("t.u32", 4000000000)
writer.add_int32("t.i32", -2000000000)
writer.add_uint64("t.u64", 2**63 + 1)
writer.add_int64("t.i64", -2**62)
writer.add_float32("t.f32", 0.15625)
writer.add_float64("t.f64", 1e300)
writer.add_bool("t.true", True)
writer.add_bool("t.false", False)
writer.add_string("t.string", "self-attention \u81ea\u6ce8\u610f\u529b")
writer.add_array("t.strings", ["a", "", "\u8bcd"])
writer.add_array("t.ints", [1, -2, 3])
writer.add_array("t.floats", [0.5, -1.25])
expected = {}
for name, halves in HALVES.items():
    kind = kinds[name]
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    rows, blocks = 3, 512 // elements
    data = generator.integers(0, 256, (rows, blocks, size), dtype=np.uint8)
    for at in halves:
        scale = generator.standard_normal((rows, blocks)) * 10.0 ** generator.integers(-4, 2, (rows, blocks))
        scale = scale.astype(np.float16)
        scale[0, 0] = 0
        scale[1, 0] = np.float16(6e-8)  # the smallest subnormal
        scale[2, 0] = -scale[2, 0]
        data[:, :, at:at + 2] = scale[:, :, None].view(np.uint8).reshape(rows, blocks, 2)
    data = data.reshape(rows, blocks * size)
    writer.add_tensor(name.lower(), data, raw_dtype=kind)
    expected[name.lower()] = gguf.quants.dequantize(data, kind).astype(np.float32)
values = generator.standard_normal((2, 3, 5)).astype(np.float32)
writer.add_tensor("f32", values)
expected["f32"] = values
writer.add_tensor("f16", values.astype(np.float16))
expected["f16"] = values.astype(np.float16).astype(np.float32)
bf16 = gguf.quants.quantize(values[0], kinds.BF16)
writer.add_tensor("bf16", bf16, raw_dtype=kinds.BF16)
expected["bf16"] = gguf.quants.dequantize(bf16, kinds.BF16)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
save_file({k: np.ascontiguousarray(v) for k, v in expected.items()}, os.path.join(folder, "blocks.safetensors"))

arrays = {
    "f16": values.astype(np.float16), "f32": values, "f64": values.astype(np.float64),
    "i8": np.arange(-3, 3, dtype=np.int8), "u8": np.arange(250, 256, dtype=np.uint8), "i16": np.array([-30000, 30000], np.int16),
    "i32": np.arange(6, dtype=np.int32).reshape(2, 3), "i64": np.array([2**40, -1]), "boolean": np.array([True, False]),
}
save_file(arrays, os.path.join(folder, "types.safetensors"), metadata={"made by": "safetensors"})
np.savez_compressed(os.path.join(folder, "numpy.npz"), **arrays, scalar=np.float32(2.5), empty=np.zeros((0, 4), np.float32),
                    fortran=np.asfortranarray(values), words=np.array(["it", "animal"]), big=values.astype(">f4"))
np.save(os.path.join(folder, "numpy.npy"), values)
