// Sets of pictures: chosen as NumPy chose them, drawn as they are described.
#include "regard/train/image_sets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>

#include "regard/io/error.h"
#include "regard/train/numpy_random.h"
#include "regard/train/shapes.h"
#include "tests/io/files.h"

namespace regard::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// numpy.random.default_rng(0).permutation(1797)[:10], default_rng(7).permutation(5) and (1), NumPy 2.4.
TEST(NumpyRandom, PermutesAsNumPyDoes) {
  const std::vector<int64_t> order = NumpyRandom(0).permutation(1797);
  EXPECT_THAT(std::vector<int64_t>(order.begin(), order.begin() + 10),
              ElementsAre(360, 1773, 1482, 600, 850, 196, 968, 1742, 567, 1168));
  EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()).size(), 1797u);
  NumpyRandom seven(7);
  EXPECT_THAT(seven.permutation(5), ElementsAre(2, 0, 4, 1, 3));
  EXPECT_THAT(seven.permutation(1), ElementsAre(0));
  EXPECT_THAT(NumpyRandom(7).permutation(0), ElementsAre());
  NumpyRandom raw(12345);
  EXPECT_EQ(raw.next(), 4193609425186963869ULL);
  EXPECT_EQ(raw.next(), 5843160025838961886ULL);
}

std::string digit_line(int label) {
  std::string line;
  for (int i = 0; i < 64; ++i) line += std::to_string((i + label) % 17) + ".000000000000000000e+00,";
  return line + std::to_string(label) + ".000000000000000000e+00\n";
}

TEST(Digits, AreReadAndPutIntoNumPysOrder) {
  std::string csv;
  for (int i = 0; i < 1797; ++i) csv += digit_line(i % 10);
  const ImageSplit split = digits(csv, "digits.csv");
  EXPECT_THAT(split.train.images.shape, ElementsAre(1297, 8, 8));
  EXPECT_THAT(split.test.labels.shape, ElementsAre(500));
  EXPECT_EQ(split.train.labels.values[0], 360 % 10);
  EXPECT_EQ(split.train.labels.values[1], 1773 % 10);
  EXPECT_EQ(split.train.images.values[0], 360 % 10 % 17);
  EXPECT_EQ(split.train.images.values[64 + 20], (20 + 1773 % 10) % 17);
}

TEST(Digits, WrongLinesAreNamed) {
  const auto refusal = [](const std::string& csv) {
    return io::message_of<io::Error>([&] { digits(csv, "digits.csv"); });
  };
  EXPECT_THAT(refusal(digit_line(1) + "1,2,3\n"), HasSubstr("digits.csv line 2: field 3"));
  EXPECT_THAT(refusal(digit_line(1)), HasSubstr("has 1 lines, not 1797"));
  EXPECT_THAT(refusal(digit_line(1).substr(0, 20) + "x"), HasSubstr("line 1"));
  std::string large = digit_line(1);
  large.replace(0, 1, "17");
  EXPECT_THAT(refusal(large), HasSubstr("line 1: field 1"));
}

TEST(Fashion, AClassWithTooFewPicturesIsNamed) {
  const io::TemporaryFolder folder;
  for (const char* part : {"train", "t10k"}) {
    io::write_idx(folder / (std::string(part) + "-images-idx3-ubyte.gz"),
                  {{3, 2, 2}, std::vector<uint8_t>(12)});
    io::write_idx(folder / (std::string(part) + "-labels-idx1-ubyte.gz"), {{3}, {0, 1, 2}});
  }
  EXPECT_THAT(io::message_of<io::Error>([&] { fashion(folder.path()); }),
              HasSubstr("class 0 has 1 pictures, not 1000"));
}

TEST(Shapes, CaptionsAndCodesSayWhatIsThere) {
  const Scene scene = {{1, 3, 5, false}, {3, 0, 3, true}};
  EXPECT_EQ(scene_code(scene), "1,3,5,s;3,0,3,l");
  EXPECT_EQ(english_caption(scene),
            "a small purple cross at the top right and a large yellow circle at the bottom right");
  EXPECT_EQ(chinese_caption(scene), "右上有一个小的紫色十字，右下有一个大的黄色圆形");
}

TEST(Shapes, AreDrawnDotForDot) {
  const auto drawn = [](int shape, bool large) {
    const std::vector<uint8_t> rgb = draw_scene({{0, shape, 0, large}}, {0, 0});
    std::vector<int> widths;  // of the red in each row
    for (int row = 0; row < 16; ++row) {
      int count = 0;
      for (int column = 0; column < 16; ++column)
        count += rgb[static_cast<size_t>(3 * (32 * row + column))] == 220 ? 1 : 0;
      widths.push_back(count);
    }
    return widths;
  };
  EXPECT_THAT(drawn(0, true), ElementsAre(0, 1, 7, 9, 11, 13, 13, 13, 15, 13, 13, 13, 11, 9, 7, 1));
  EXPECT_THAT(drawn(1, false), ElementsAre(0, 0, 0, 0, 0, 7, 7, 7, 7, 7, 7, 7, 0, 0, 0, 0));
  EXPECT_THAT(drawn(2, false), ElementsAre(0, 0, 0, 0, 1, 1, 3, 3, 5, 5, 7, 7, 0, 0, 0, 0));
  EXPECT_THAT(drawn(3, true), ElementsAre(0, 5, 5, 5, 5, 5, 15, 15, 15, 15, 15, 5, 5, 5, 5, 5));
  EXPECT_THROW(draw_scene({{0, 0, 0, true}}, {0}), std::invalid_argument);
}

// The answer, found again from the scene and the words of the question.
std::string answer(const Scene& scene, const std::string& question) {
  const std::vector<std::string> cells = {"top left", "top right", "bottom left", "bottom right"};
  const std::vector<std::string> shapes = {"circle", "square", "triangle", "cross"};
  const std::vector<std::string> colors = {"red", "green", "blue", "yellow", "white", "purple"};
  const std::vector<std::string> numbers = {"zero", "one", "two", "three", "four"};
  const auto says = [&](const std::string& word) { return question.find(word) != std::string::npos; };
  std::vector<Thing> at;
  size_t of_color = 0;
  bool both = false;
  for (const Thing& thing : scene) {
    const bool color = says(' ' + colors[static_cast<size_t>(thing.color)] + ' ');
    if (says(cells[static_cast<size_t>(thing.cell)])) at.push_back(thing);
    of_color += color ? 1 : 0;
    both = both || (color && says(shapes[static_cast<size_t>(thing.shape)] + " ?"));
  }
  if (question.starts_with("what color")) return colors[static_cast<size_t>(at.at(0).color)];
  if (question.starts_with("what shape")) return shapes[static_cast<size_t>(at.at(0).shape)];
  if (question.starts_with("how many")) return numbers[of_color];
  if (question.starts_with("are the")) return at.at(0).color == at.at(1).color ? "yes" : "no";
  return (says("shape at") ? !at.empty() : both) ? "yes" : "no";
}

TEST(Shapes, EveryQuestionHasItsAnswerAndNoSceneIsShared) {
  const Shapes shapes = make_shapes({.seed = 1, .train = 400, .valid = 100, .test = 100});
  std::set<Scene> train(shapes.train.scenes.begin(), shapes.train.scenes.end());
  std::set<std::string> answers;
  for (const ShapesSplit* split : {&shapes.train, &shapes.valid, &shapes.test}) {
    EXPECT_THAT(split->images.shape, ElementsAre(static_cast<int64_t>(split->scenes.size()), 32, 32, 3));
    for (size_t i = 0; i < split->scenes.size(); ++i) {
      const Scene& scene = split->scenes[i];
      EXPECT_EQ(split->questions[i].size(), scene.size() > 1 ? 6u : 5u);
      for (const Question& question : split->questions[i]) {
        EXPECT_EQ(question.answer, answer(scene, question.text))
            << scene_code(scene) << ": " << question.text;
        answers.insert(question.answer);
      }
    }
  }
  EXPECT_GT(answers.size(), 15u);
  std::set<Scene> valid(shapes.valid.scenes.begin(), shapes.valid.scenes.end());
  EXPECT_EQ(valid.size(), 100u);
  for (const Scene& scene : shapes.valid.scenes) EXPECT_FALSE(train.contains(scene)) << scene_code(scene);
  for (const Scene& scene : shapes.test.scenes) EXPECT_FALSE(train.contains(scene) || valid.contains(scene));
}

TEST(Shapes, TheSeedDecides) {
  const ShapesOptions small{.seed = 3, .train = 20, .valid = 5, .test = 5};
  EXPECT_EQ(make_shapes(small).train.images, make_shapes(small).train.images);
  ShapesOptions other = small;
  other.seed = 4;
  EXPECT_NE(make_shapes(small).train.scenes, make_shapes(other).train.scenes);
  EXPECT_THROW(make_shapes({.train = 0}), std::invalid_argument);
  EXPECT_THROW(make_shapes({.valid = 60'000}), std::invalid_argument);
}

}  // namespace
}  // namespace regard::train
