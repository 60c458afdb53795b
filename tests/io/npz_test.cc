#include "regard/io/npz.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "regard/io/error.h"
#include "regard/io/safetensors.h"
#include "tests/io/files.h"

namespace regard::io {
namespace {

using testing::HasSubstr;

bool same(const Tensor& a, const Tensor& b) {
  return a.type == b.type && a.shape == b.shape &&
         std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin(), b.bytes.end());
}

TEST(Npz, ReadsWhatNumPyWrote) {
  const Npz file = Npz::open(golden("numpy.npz"));
  const Safetensors expected = Safetensors::open(golden("types.safetensors"));
  for (const Tensor& tensor : expected.tensors())
    EXPECT_TRUE(same(file.require(tensor.name), tensor)) << tensor.name;
  EXPECT_TRUE(same(file.require("fortran"), expected.require("f32")));
  EXPECT_EQ(file.require("scalar").shape, std::vector<int64_t>{});
  EXPECT_EQ(to_floats(file.require("scalar")), std::vector<float>{2.5});
  EXPECT_EQ(file.require("empty").shape, (std::vector<int64_t>{0, 4}));
  EXPECT_EQ(file.find("words"), nullptr);
  EXPECT_THAT(message_of<Error>([&] { file.require("words"); }),
              HasSubstr("cannot be used: its type is \"<U6\""));
  EXPECT_THAT(message_of<Error>([&] { file.require("big"); }), HasSubstr("its type is \">f4\""));
  EXPECT_THAT(message_of<Error>([&] { file.require("q"); }),
              HasSubstr("array \"q\" is missing; there is \"f16\", \"f32\""));

  const Npz single = Npz::open(golden("numpy.npy"));
  EXPECT_TRUE(same(single.require(""), expected.require("f32")));
}

struct Arrays {
  std::vector<float> floats = {1.5f, -2, 3, 4, 5, 6};
  std::vector<int64_t> longs = {int64_t{1} << 40};
  std::vector<uint8_t> bytes = std::vector<uint8_t>(300'000, 7);
  std::vector<double> none;
  std::vector<Tensor> all = {view("q", {1, 2, 3}, floats), view("n", {}, longs),
                             view("bytes", {300'000}, bytes), view("\u6ce8\u610f", {0, 2}, none),
                             view("row", {6}, floats)};
};

TEST(Npz, WritingAndReadingGivesTheSame) {
  const TemporaryFolder folder;
  const Arrays arrays;
  for (const Compression compression : {Compression::none, Compression::deflate}) {
    write_npz(folder / "x.npz", arrays.all, compression);
    const Npz file = Npz::open(folder / "x.npz");
    ASSERT_EQ(file.tensors().size(), arrays.all.size());
    for (const Tensor& array : arrays.all) EXPECT_TRUE(same(file.require(array.name), array)) << array.name;
    EXPECT_EQ(std::filesystem::file_size(folder / "x.npz") < 100'000, compression == Compression::deflate);
  }
  write_npy(folder / "x.npy", arrays.all[0]);
  EXPECT_TRUE(same(Npz::open(folder / "x.npy").require(""), arrays.all[0]));
  EXPECT_EQ(std::filesystem::file_size(folder / "x.npy") % 8, 0u);
  EXPECT_EQ(folder.entries(), 2u);
}

// Python's own zip reader and, where it is installed, NumPy.
TEST(Npz, PythonReadsWhatWeWrite) {
  const TemporaryFolder folder;
  const Arrays arrays;
  write_npz(folder / "x.npz", arrays.all);
  write_npy(folder / "x.npy", arrays.all[0]);
  write_all(folder / "check.py", R"(
import ast, sys, zipfile
archive = zipfile.ZipFile(sys.argv[1] + "/x.npz")
assert archive.testzip() is None
assert archive.namelist() == ["q.npy", "n.npy", "bytes.npy", "\u6ce8\u610f.npy", "row.npy"], archive.namelist()
data = archive.read("q.npy")
assert data[:8] == b"\x93NUMPY\x01\x00" and len(data) % 8 == 0
length = int.from_bytes(data[8:10], "little")
assert (10 + length) % 64 == 0
assert ast.literal_eval(data[10:10 + length].decode()) == {"descr": "<f4", "fortran_order": False, "shape": (1, 2, 3)}
assert ast.literal_eval(archive.read("row.npy")[10:128].split(b"\n")[0].decode())["shape"] == (6,)
assert ast.literal_eval(archive.read("n.npy")[10:128].split(b"\n")[0].decode())["shape"] == ()
try:
    import numpy
except ImportError:
    sys.exit()
loaded = numpy.load(sys.argv[1] + "/x.npz")
assert loaded["q"].tolist() == [[[1.5, -2, 3], [4, 5, 6]]] and loaded["q"].dtype == numpy.float32
assert loaded["n"] == 2**40 and loaded["bytes"].sum() == 2_100_000 and loaded["\u6ce8\u610f"].shape == (0, 2)
assert numpy.load(sys.argv[1] + "/x.npy").shape == (1, 2, 3)
)");
  const std::string at = folder.path().string();
  EXPECT_EQ(std::system(("python3 '" + at + "/check.py' '" + at + "'").c_str()), 0);
}

TEST(Npz, RefusesToInflateBeyondTheLimit) {
  const TemporaryFolder folder;
  const Arrays arrays;
  write_npz(folder / "x.npz", arrays.all);
  EXPECT_THAT(message_of<Error>([&] { Npz::open(folder / "x.npz", 100'000); }),
              HasSubstr("larger than 100000 bytes"));
}

TEST(Npz, WriterRefusesWhatNumPyCannotHold) {
  const TemporaryFolder folder;
  const std::vector<float> two = {1, 2};
  const auto write = [&](std::vector<Tensor> arrays) {
    return message_of<std::invalid_argument>([&] { write_npz(folder / "x.npz", arrays); });
  };
  Tensor bf16 = view("a", {4}, two);
  bf16.type = Type::bf16;
  EXPECT_THAT(write({bf16}), HasSubstr("type bf16, which NumPy does not have"));
  EXPECT_THAT(write({view("a", {3}, two)}), HasSubstr("do not fit its shape [3]"));
  EXPECT_THAT(write({view("a", {2}, two), view("a", {2}, two)}), HasSubstr("repeated"));
  EXPECT_THAT(write({view("", {2}, two)}), HasSubstr("is empty"));
  EXPECT_EQ(folder.entries(), 0u);
}

}  // namespace
}  // namespace regard::io
