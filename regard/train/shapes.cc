#include "regard/train/shapes.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>
#include <stdexcept>
#include <utility>

#include "regard/io/atomic_file.h"
#include "regard/train/shuffle.h"

namespace regard::train {
namespace {

constexpr const char* kShapes[] = {"circle", "square", "triangle", "cross"};
constexpr const char* kColors[] = {"red", "green", "blue", "yellow", "white", "purple"};
constexpr const char* kCells[] = {"top left", "top right", "bottom left", "bottom right"};
constexpr const char* kNumbers[] = {"zero", "one", "two", "three", "four"};
constexpr const char* kChineseShapes[] = {"圆形", "正方形", "三角形", "十字"};
constexpr const char* kChineseColors[] = {"红色", "绿色", "蓝色", "黄色", "白色", "紫色"};
constexpr const char* kChineseCells[] = {"左上", "右上", "左下", "右下"};
constexpr std::array<uint8_t, 3> kBackground = {28, 28, 32};
constexpr std::array<uint8_t, 3> kPaint[] = {{220, 40, 40},  {40, 180, 60},   {50, 80, 220},
                                             {235, 215, 50}, {240, 240, 240}, {150, 60, 190}};

template <class T, size_t N>
T one_of(const T (&values)[N], int index) {
  return values[static_cast<size_t>(index)];
}

bool covers(int shape, int dx, int dy, int radius) {
  switch (shape) {
    case 0:
      return dx * dx + dy * dy <= radius * radius;
    case 1:
      return std::abs(dx) < radius && std::abs(dy) < radius;
    case 2:
      return dy >= -radius && dy < radius && 2 * std::abs(dx) <= dy + radius;
    default:
      return std::abs(dx) <= radius && std::abs(dy) <= radius &&
             (std::abs(dx) <= radius / 3 || std::abs(dy) <= radius / 3);
  }
}

int pick(std::mt19937_64& generator, int count) {
  return static_cast<int>(below(generator, static_cast<uint64_t>(count)));
}

Scene random_scene(std::mt19937_64& generator) {
  const int count = 1 + pick(generator, 4);
  std::array<int, 4> cells = {0, 1, 2, 3};
  for (size_t i = 0; i < 3; ++i)
    std::swap(cells[i], cells[i + static_cast<size_t>(pick(generator, 4 - static_cast<int>(i)))]);
  std::sort(cells.begin(), cells.begin() + count);
  Scene scene;
  for (int i = 0; i < count; ++i) {
    const int shape = pick(generator, 4);
    const int color = pick(generator, 6);
    scene.push_back({cells[static_cast<size_t>(i)], shape, color, pick(generator, 2) == 1});
  }
  return scene;
}

std::vector<Question> ask(const Scene& scene, std::mt19937_64& generator) {
  const auto thing = [&] {
    return scene[static_cast<size_t>(pick(generator, static_cast<int>(scene.size())))];
  };
  const auto cell = [](int index) { return std::string(one_of(kCells, index)); };
  const auto yes = [](bool holds) { return std::string(holds ? "yes" : "no"); };
  std::vector<Question> out;
  const Thing colored = thing();
  out.push_back({"color", "what color is the shape at the " + cell(colored.cell) + " ?",
                 one_of(kColors, colored.color)});
  const Thing shaped = thing();
  out.push_back({"shape", "what shape is at the " + cell(shaped.cell) + " ?", one_of(kShapes, shaped.shape)});
  const int where = pick(generator, 4);
  const bool there = std::any_of(scene.begin(), scene.end(), [&](const Thing& t) { return t.cell == where; });
  out.push_back({"exist", "is there a shape at the " + cell(where) + " ?", yes(there)});
  // A color that is there, three times of four.
  const int counted = pick(generator, 4) > 0 ? thing().color : pick(generator, 6);
  const auto how_many =
      std::count_if(scene.begin(), scene.end(), [&](const Thing& t) { return t.color == counted; });
  out.push_back({"count", "how many " + std::string(one_of(kColors, counted)) + " shapes are there ?",
                 one_of(kNumbers, static_cast<int>(how_many))});
  const Thing real = thing();
  const bool as_it_is = pick(generator, 3) == 0;
  const int color = as_it_is ? real.color : pick(generator, 6);
  const int shape = as_it_is ? real.shape : pick(generator, 4);
  const bool exists = std::any_of(scene.begin(), scene.end(),
                                  [&](const Thing& t) { return t.color == color && t.shape == shape; });
  out.push_back({"exist2",
                 "is there a " + std::string(one_of(kColors, color)) + " " + one_of(kShapes, shape) + " ?",
                 yes(exists)});
  if (scene.size() > 1) {
    const size_t first = static_cast<size_t>(pick(generator, static_cast<int>(scene.size())));
    size_t second = static_cast<size_t>(pick(generator, static_cast<int>(scene.size()) - 1));
    if (second >= first) ++second;
    out.push_back({"same",
                   "are the shapes at the " + cell(scene[first].cell) + " and the " +
                       cell(scene[second].cell) + " the same color ?",
                   yes(scene[first].color == scene[second].color)});
  }
  return out;
}

// Scenes, and then what they look like and what is asked of them, each from its own stream.
ShapesSplit complete(std::vector<Scene> scenes, uint64_t seed, uint64_t stream) {
  ShapesSplit split;
  std::mt19937_64 generator = generator_of(seed, stream);
  split.images.shape = {static_cast<int64_t>(scenes.size()), kShapesSide, kShapesSide, 3};
  for (const Scene& scene : scenes) {
    std::vector<int> offsets;
    for (size_t i = 0; i < 2 * scene.size(); ++i) offsets.push_back(pick(generator, 3) - 1);
    const std::vector<uint8_t> picture = draw_scene(scene, offsets);
    split.images.values.insert(split.images.values.end(), picture.begin(), picture.end());
    split.questions.push_back(ask(scene, generator));
  }
  split.scenes = std::move(scenes);
  return split;
}

void write_split(const std::filesystem::path& folder, const std::string& name, const ShapesSplit& split) {
  io::write_idx(folder / (name + ".images-idx4-ubyte.gz"), split.images);
  std::string captions, questions;
  for (size_t i = 0; i < split.scenes.size(); ++i) {
    const std::string number = std::to_string(i);
    captions += number + '\t' + english_caption(split.scenes[i]) + '\t' + chinese_caption(split.scenes[i]) +
                '\t' + scene_code(split.scenes[i]) + '\n';
    for (const Question& question : split.questions[i])
      questions += number + '\t' + question.kind + '\t' + question.text + '\t' + question.answer + '\n';
  }
  io::write_file_atomically(folder / (name + ".captions.tsv"), captions);
  io::write_file_atomically(folder / (name + ".qa.tsv"), questions);
}

}  // namespace

std::string scene_code(const Scene& scene) {
  std::string out;
  for (const Thing& thing : scene) {
    out += (out.empty() ? "" : ";") + std::to_string(thing.cell) + ',' + std::to_string(thing.shape) + ',' +
           std::to_string(thing.color) + (thing.large ? ",l" : ",s");
  }
  return out;
}

std::string english_caption(const Scene& scene) {
  std::string out;
  for (const Thing& thing : scene) {
    out += std::string(out.empty() ? "a " : " and a ") + (thing.large ? "large " : "small ") +
           one_of(kColors, thing.color) + ' ' + one_of(kShapes, thing.shape) + " at the " +
           one_of(kCells, thing.cell);
  }
  return out;
}

std::string chinese_caption(const Scene& scene) {
  std::string out;
  for (const Thing& thing : scene) {
    out += std::string(out.empty() ? "" : "，") + one_of(kChineseCells, thing.cell) + "有一个" +
           (thing.large ? "大的" : "小的") + one_of(kChineseColors, thing.color) +
           one_of(kChineseShapes, thing.shape);
  }
  return out;
}

std::vector<uint8_t> draw_scene(const Scene& scene, const std::vector<int>& offsets) {
  if (offsets.size() != 2 * scene.size())
    throw std::invalid_argument("draw_scene: there must be two offsets for each thing");
  std::vector<uint8_t> out;
  for (int64_t i = 0; i < kShapesSide * kShapesSide; ++i)
    out.insert(out.end(), kBackground.begin(), kBackground.end());
  for (size_t i = 0; i < scene.size(); ++i) {
    const Thing& thing = scene[i];
    const int x = 8 + 16 * (thing.cell % 2) + offsets[2 * i];
    const int y = 8 + 16 * (thing.cell / 2) + offsets[2 * i + 1];
    for (int row = 0; row < kShapesSide; ++row) {
      for (int column = 0; column < kShapesSide; ++column) {
        if (!covers(thing.shape, column - x, row - y, thing.large ? 7 : 4)) continue;
        const auto& paint = kPaint[static_cast<size_t>(thing.color)];
        std::copy(paint.begin(), paint.end(), out.begin() + 3 * (row * kShapesSide + column));
      }
    }
  }
  return out;
}

Shapes make_shapes(const ShapesOptions& options) {
  if (options.train < 1 || options.valid < 1 || options.test < 1)
    throw std::invalid_argument("make_shapes: each part needs a picture at least");
  if (options.valid + options.test > 50'000)
    throw std::invalid_argument("make_shapes: valid and test ask for " +
                                std::to_string(options.valid + options.test) +
                                " scenes of their own; at most 50000");
  std::mt19937_64 generator = generator_of(options.seed, 0);
  std::set<Scene> taken;
  const auto own = [&](int64_t count) {
    std::vector<Scene> scenes;
    while (static_cast<int64_t>(scenes.size()) < count) {
      Scene scene = random_scene(generator);
      // One thing alone has only 192 scenes: some must be left to train.
      if (scene.size() == 1 && pick(generator, 8) > 0) continue;
      if (taken.insert(scene).second) scenes.push_back(std::move(scene));
    }
    return scenes;
  };
  std::vector<Scene> valid = own(options.valid);
  std::vector<Scene> test = own(options.test);
  std::vector<Scene> train;
  while (static_cast<int64_t>(train.size()) < options.train) {
    Scene scene = random_scene(generator);
    if (!taken.contains(scene)) train.push_back(std::move(scene));
  }
  return {complete(std::move(train), options.seed, 1), complete(std::move(valid), options.seed, 2),
          complete(std::move(test), options.seed, 3)};
}

void write_shapes(const std::filesystem::path& folder, const Shapes& shapes) {
  write_split(folder, "train", shapes.train);
  write_split(folder, "valid", shapes.valid);
  write_split(folder, "test", shapes.test);
}

}  // namespace regard::train
