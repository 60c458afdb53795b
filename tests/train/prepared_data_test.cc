// What is made and prepared is the same, byte for byte, on every machine: a small input in, a hash out.
#include <gtest/gtest.h>

#include <map>

#include "regard/io/download.h"
#include "regard/io/gzip.h"
#include "regard/io/mapped_file.h"
#include "regard/train/data_sets.h"
#include "regard/train/image_sets.h"
#include "tests/io/files.h"

namespace regard::train {
namespace {

namespace fs = std::filesystem;

class PreparedData : public ::testing::Test {
 protected:
  // Of all the files one after the other, unpacked: what gzip makes of them is its own business.
  std::string hash_of(const std::vector<fs::path>& files) const {
    std::string all;
    for (const fs::path& file : files) {
      const io::MappedFile mapped = io::MappedFile::open(file);
      if (file.extension() == ".gz") {
        const std::vector<std::byte> plain = io::gunzip(mapped.bytes(), file.string());
        all.append(reinterpret_cast<const char*>(plain.data()), plain.size());
      } else {
        all += mapped.text();
      }
    }
    io::write_all(folder_ / "all", all);
    return io::sha256_of_file(folder_ / "all");
  }
  void expect(const std::string& name, const std::vector<fs::path>& files, const std::string& hash) const {
    EXPECT_EQ(hash_of(files), hash) << name;
  }

  io::TemporaryFolder folder_;
};

TEST_F(PreparedData, FromASeed) {
  const std::map<std::string, std::string> hashes = {
      {"copy", "1c4daeff2a555256e00cb2dc361306168ae21d69b167b2e4fb6be180535c6561"},
      {"reverse", "d03e62540d80f6dcad2a803adf81966c0cdc0a5f6a6345699d6a6dc8ad2030d8"},
      {"repeat", "6d501f1063d7bfe76d7c08043fe36d36fb7e89664067d828ffc21e7c9e0f5a60"},
      {"selective", "813fb4b478870efb476e4d992b7f37649247cbd874c1e4d25e0dce0f854894a2"},
      {"recall", "df6011f11a3346d08c99abb8b9ccc6466d5ba03eea5856fc2ae4a1e2478c564f"},
      {"needle", "819dbd03125f4d0542aa6804dbe394349213274965a6ecdb9af091817dc61be8"},
      {"listops", "524f5acb468402a1df16b168e3a8fc81e46438c44263de0d15c260a2bda33c16"},
      {"shapes", "5f42a7bc2125524fcb0d82fde92ce1b5d2746ed39a62829ee3d2777d9f211ddc"},
      {"zipf_markov", "62a156012e5dfac8a6614d5cb0ee10fc29892c469460985a17a2d4f4c33aa97b"},
  };
  size_t made = 0;
  for (const DataSet& set : data_sets()) {
    if (set.origin != Origin::made) continue;
    ASSERT_TRUE(hashes.contains(set.name)) << set.name;
    expect(set.name, make(set, folder_ / set.name), hashes.at(set.name));
    ++made;
  }
  EXPECT_EQ(made, hashes.size());
}

TEST_F(PreparedData, Pairs) {
  std::string tsv;
  for (int i = 0; i < 4500; ++i) {
    const std::string number = std::to_string(i), third = std::to_string(i < 4200 ? i / 3 : i);
    tsv += "Sentence " + number + ".\tPhrase\xC2\xA0" + third + "\xE2\x80\xAF!\tCC-BY " + number + "\r\n";
    if (i % 5 == 0) tsv += "Sentence " + number + ".\t\xE2\x80\x99" + number + "e\xCC\x81\n";
  }
  io::write_all(folder_ / "fra.txt", tsv);
  expect("tatoeba-en-fr", prepare(data_set("tatoeba-en-fr"), folder_ / "fra.txt", folder_ / "out"),
         "7bb0e50215a9f0bd6162c71ef583e8a2fc18f171b504f9d01fe84d2ae81e4772");
}

TEST_F(PreparedData, Books) {
  std::string text = "\xEF\xBB\xBFHeader\r\n*** START OF THE PROJECT GUTENBERG EBOOK A BOOK ***\r\n\r\n";
  for (int i = 0; i < 100; ++i)
    text += "\xE3\x80\x80\xE7\xAC\xAC" + std::to_string(i) + "\xE5\x9B\x9E\xEF\xBC\x8E \t\r\n\r\n\r\n";
  text += "*** END OF THE PROJECT GUTENBERG EBOOK A BOOK ***\r\nFooter\r\n";
  io::write_all(folder_ / "book.txt", text);
  const std::map<std::string, std::string> hashes = {
      {"tinyshakespeare", "b92bea3accdd370bb5b0f6511316c87c6bc43989c9c2f7ba9b00d9384c18fe9b"},
      {"moby_dick", "b92bea3accdd370bb5b0f6511316c87c6bc43989c9c2f7ba9b00d9384c18fe9b"},
      {"war_and_peace", "03668baf2bda78ab10957e20432224426809360cb7db2d09f097be482c102b65"},
      {"shuihuzhuan", "b952b79cd3e334a65fe928166622d413b85bbfe00db7333d141dbb24b5ea40d0"},
      {"hongloumeng", "f23b5caf2dbf55a06684691e23f7b3f979d0c00de6e963753bf1f4419c5fc879"},
  };
  for (const auto& [name, hash] : hashes)
    expect(name, prepare(data_set(name), folder_ / "book.txt", folder_ / name), hash);
}

TEST_F(PreparedData, Pictures) {
  std::string csv;
  for (int i = 0; i < 1797; ++i) {
    for (int pixel = 0; pixel < 64; ++pixel) csv += std::to_string((i * 5 + pixel * 3) % 17) + ",";
    csv += std::to_string(i % 10) + "\n";
  }
  const auto files_of = [](const fs::path& folder) {
    std::vector<fs::path> out;
    for (const char* name :
         {"train-images-idx3", "train-labels-idx1", "test-images-idx3", "test-labels-idx1"})
      out.push_back(folder / (std::string(name) + "-ubyte.gz"));
    return out;
  };
  fs::create_directories(folder_ / "digits");
  write_images(folder_ / "digits", digits(csv, "digits.csv"));
  expect("digits", files_of(folder_ / "digits"),
         "564274e7c72b9d10e8aeb980e578b796841e742b0e2a4a1b0700df3b8e979e93");

  fs::create_directories(folder_ / "source");
  for (const auto& [part, count] : {std::pair("train", 10'400), std::pair("t10k", 2'300)}) {
    io::Idx images{{count, 2, 2}, {}}, labels{{count}, {}};
    for (int i = 0; i < count; ++i) {
      labels.values.push_back(static_cast<uint8_t>(i * 7 % 10));
      for (int pixel = 0; pixel < 4; ++pixel) images.values.push_back(static_cast<uint8_t>(i * 31 + pixel));
    }
    io::write_idx(folder_ / (std::string("source/") + part + "-images-idx3-ubyte.gz"), images);
    io::write_idx(folder_ / (std::string("source/") + part + "-labels-idx1-ubyte.gz"), labels);
  }
  expect("fashion-mnist", get(data_set("fashion-mnist"), folder_ / "fashion", folder_ / "source"),
         "192c13856006286d7b11967d527bec178b1df2566809df78020151e186c705c3");
}

}  // namespace
}  // namespace regard::train
