#include "regard/train/image_sets.h"

#include <algorithm>
#include <charconv>

#include "regard/io/error.h"
#include "regard/train/numpy_random.h"

namespace regard::train {
namespace {

constexpr int64_t kDigits = 1797;
constexpr int64_t kDigitsToTrain = 1297;
constexpr int64_t kDigitSide = 8;
constexpr int64_t kClasses = 10;

LabelledImages pick(const LabelledImages& from, std::span<const int64_t> which) {
  LabelledImages out;
  out.images.shape = from.images.shape;
  out.images.shape[0] = static_cast<int64_t>(which.size());
  out.labels.shape = {static_cast<int64_t>(which.size())};
  const int64_t pixels = from.images.shape[1] * from.images.shape[2];
  for (const int64_t i : which) {
    const auto begin = from.images.values.begin() + i * pixels;
    out.images.values.insert(out.images.values.end(), begin, begin + pixels);
    out.labels.values.push_back(from.labels.values[static_cast<size_t>(i)]);
  }
  return out;
}

// 64 numbers and a label; throws with the line's number.
void read_digit(std::string_view line, const std::string& where, LabelledImages& into) {
  const char* at = line.data();
  const char* const end = line.data() + line.size();
  for (int64_t i = 0; i <= kDigitSide * kDigitSide; ++i) {
    const bool label = i == kDigitSide * kDigitSide;
    double value = -1;
    const auto [after, error] = std::from_chars(at, end, value);
    if (error != std::errc() || value < 0 || value > (label ? 9 : 16) || value != static_cast<int>(value) ||
        (label ? after != end : after == end || *after != ','))
      io::fail(where, "field " + std::to_string(i + 1) +
                          " is not what a line of digits.csv has: 64 whole numbers from "
                          "0 to 16 and a digit, with commas between");
    (label ? into.labels : into.images).values.push_back(static_cast<uint8_t>(value));
    at = label ? after : after + 1;
  }
}

LabelledImages read_pair(const std::filesystem::path& folder, const std::string& prefix) {
  return read_labelled(folder / (prefix + "-images-idx3-ubyte.gz"),
                       folder / (prefix + "-labels-idx1-ubyte.gz"));
}

LabelledImages choose(const LabelledImages& all, int64_t of_each, const std::string& source,
                      NumpyRandom& random) {
  std::vector<int64_t> chosen;
  for (int64_t c = 0; c < kClasses; ++c) {
    std::vector<int64_t> members;
    for (size_t i = 0; i < all.labels.values.size(); ++i) {
      if (all.labels.values[i] == c) members.push_back(static_cast<int64_t>(i));
    }
    if (static_cast<int64_t>(members.size()) < of_each)
      io::fail(source, "class " + std::to_string(c) + " has " + std::to_string(members.size()) +
                           " pictures, not " + std::to_string(of_each));
    const std::vector<int64_t> order = random.permutation(members);
    chosen.insert(chosen.end(), order.begin(), order.begin() + of_each);
  }
  std::sort(chosen.begin(), chosen.end());
  return pick(all, chosen);
}

}  // namespace

LabelledImages read_labelled(const std::filesystem::path& images, const std::filesystem::path& labels) {
  LabelledImages all{io::read_idx(images), io::read_idx(labels)};
  const std::vector<int64_t>& shape = all.images.shape;
  if ((shape.size() != 3 && shape.size() != 4) || all.images.values.empty())
    io::fail(images.string(), "it holds no pictures [N, height, width] or [N, height, width, channels]");
  if (all.labels.shape != std::vector<int64_t>{shape[0]})
    io::fail(labels.string(), "it does not hold one label for each of the " + std::to_string(shape[0]) +
                                  " pictures of " + images.string());
  return all;
}

ImageSplit digits(std::string_view csv, const std::string& source) {
  LabelledImages all;
  int64_t lines = 0;
  while (!csv.empty()) {
    const size_t end = std::min(csv.find('\n'), csv.size());
    std::string_view line = csv.substr(0, end);
    csv.remove_prefix(std::min(end + 1, csv.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    read_digit(line, source + " line " + std::to_string(++lines), all);
  }
  if (lines != kDigits)
    io::fail(source, "has " + std::to_string(lines) + " lines, not " + std::to_string(kDigits));
  all.images.shape = {lines, kDigitSide, kDigitSide};
  all.labels.shape = {lines};
  const std::vector<int64_t> order = NumpyRandom(0).permutation(lines);
  return {pick(all, std::span(order).first(kDigitsToTrain)),
          pick(all, std::span(order).subspan(kDigitsToTrain))};
}

ImageSplit fashion(const std::filesystem::path& folder) {
  NumpyRandom random(7);
  const LabelledImages train = read_pair(folder, "train");
  const LabelledImages test = read_pair(folder, "t10k");
  ImageSplit out;
  out.train = choose(train, 1000, folder.string(), random);
  out.test = choose(test, 200, folder.string(), random);
  return out;
}

void write_images(const std::filesystem::path& folder, const ImageSplit& split) {
  for (const auto& [name, part] : {std::pair<const char*, const LabelledImages&>{"train", split.train},
                                   std::pair<const char*, const LabelledImages&>{"test", split.test}}) {
    io::write_idx(folder / (std::string(name) + "-images-idx3-ubyte.gz"), part.images);
    io::write_idx(folder / (std::string(name) + "-labels-idx1-ubyte.gz"), part.labels);
  }
}

}  // namespace regard::train
