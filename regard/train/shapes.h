#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "regard/io/idx.h"
#include "regard/train/shuffle.h"

// Drawn scenes with captions and questions: a world small enough to know everything about it.
namespace regard::train {

// One thing in a scene. cell: 0 top left, 1 top right, 2 bottom left, 3 bottom right; shape: 0 circle, 1
// square, 2 triangle, 3 cross; color: 0 red, 1 green, 2 blue, 3 yellow, 4 white, 5 purple.
struct Thing {
  int cell = 0;
  int shape = 0;
  int color = 0;
  bool large = false;
  auto operator<=>(const Thing&) const = default;
};
using Scene = std::vector<Thing>;  // by cell, no two in one

struct Question {
  std::string kind;    // color, shape, exist, exist2, count, same
  std::string text;    // lower case, words apart by spaces
  std::string answer;  // one word
};

std::string scene_code(const Scene& scene);  // "0,0,3,l;1,3,5,l"
std::string english_caption(const Scene& scene);
std::string chinese_caption(const Scene& scene);

constexpr int64_t kShapesSide = 32;  // pixels
// [32, 32, 3]: each thing at the centre of its cell, moved by offsets (two a thing: right, down, each -1 to
// 1).
std::vector<uint8_t> draw_scene(const Scene& scene, const std::vector<int>& offsets);

struct ShapesSplit {
  std::vector<Scene> scenes;
  io::Idx images;                                // [N, 32, 32, 3]
  std::vector<std::vector<Question>> questions;  // of each image: 5, or 6 where there are two things
};
struct Shapes {
  ShapesSplit train, valid, test;
};

struct ShapesOptions {
  uint64_t seed = kSeed;
  int64_t train = 8000;
  int64_t valid = 500;
  int64_t test = 1000;
};

// The same seed gives the same set on every machine. 1 to 4 things a scene, each number about alike often in
// train. No scene of valid or test is one of train, and none of valid one of test. Throws
// std::invalid_argument for a size below 1 and where valid and test ask for more scenes than can be kept
// apart (50,000).
Shapes make_shapes(const ShapesOptions& options);

// FOLDER/train.images-idx4-ubyte.gz, train.captions.tsv (image, English, Chinese, code), train.qa.tsv (image,
// kind, question, answer), and the same of valid and test.
void write_shapes(const std::filesystem::path& folder, const Shapes& shapes);

}  // namespace regard::train
