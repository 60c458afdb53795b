#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "regard/io/safetensors.h"
#include "regard/lab/columns.h"
#include "regard/lab/measures.h"
#include "regard/lab/small_model.h"
#include "regard/lab/tensors.h"

// Weights of projections are learned in training and stay as they are in use; weights of attention are made
// anew for each text.
namespace regard::lab {
namespace {

constexpr int64_t kLength = 16;
constexpr int64_t kVocabulary = 16;

SmallModelOptions model_options(uint64_t seed) {
  return {.vocabulary = kVocabulary, .classes = kVocabulary, .length = kLength, .heads = 4, .seed = seed};
}

std::vector<at::Tensor> copies(const SmallModel& model) {
  std::vector<at::Tensor> out;
  for (const auto& parameter : model.named()) out.push_back(parameter.value.detach().clone());
  return out;
}

// The share of numbers whose bits differ.
double changed(const std::vector<at::Tensor>& before, const std::vector<at::Tensor>& after) {
  double differing = 0, all = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    differing += static_cast<double>((before[i] != after[i]).sum().item<int64_t>());
    all += static_cast<double>(before[i].numel());
  }
  return differing / all;
}

// The matrices that a layer's attention has, by their names: "q", "k", ...
std::vector<std::string> attention_matrices(const SmallModel& model) {
  const std::string begin = "block0_";
  const std::string end = ".weight";
  std::vector<std::string> out;
  for (const auto& parameter : model.named()) {
    const std::string& name = parameter.name;
    if (!name.starts_with(begin) || !name.ends_with(end) || parameter.value.dim() != 2) continue;
    const std::string part = name.substr(begin.size(), name.size() - begin.size() - end.size());
    if (part != "up" && part != "down") out.push_back(part);  // the feed-forward's
  }
  return out;
}

// Written to a file and read into a model that began elsewhere.
void save_and_load(const SmallModel& from, SmallModel& to) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() /
      ("regard-frozen-" + std::to_string(std::random_device{}()) + ".safetensors");
  std::vector<io::Tensor> tensors;
  for (const auto& parameter : from.named()) {
    const at::Tensor& value = parameter.value;
    tensors.push_back(
        io::view(parameter.name, value.sizes().vec(),
                 std::span<const float>(value.data_ptr<float>(), static_cast<size_t>(value.numel()))));
  }
  io::write_safetensors(path, tensors);
  {
    const io::Safetensors file = io::Safetensors::open(path);
    const at::NoGradGuard no_gradients;
    for (const auto& parameter : to.named()) {
      const std::vector<float> numbers = io::to_floats(file.require(parameter.name));
      parameter.value.copy_(at::tensor(numbers, at::kFloat).view(parameter.value.sizes()));
    }
  }
  std::filesystem::remove(path);
}

}  // namespace

Result measure_frozen(const Options& options) {
  Table table{"frozen",
              "the share of parameters that change, and what is left of a model in a file",
              {count("seed"), number("in training", 3), number("in use", 3),
               number("read back: outputs differ by"), number("two texts: attention weights differ by", 3)},
              {}};
  bool learned = true, still = true, same = true, moving = true;
  for (int64_t seed = 0; seed < options.seeds; ++seed) {
    SmallModel model(model_options(static_cast<uint64_t>(seed)));
    Reversals task(kLength, kVocabulary, static_cast<uint64_t>(seed), 0);
    const std::vector<at::Tensor> begun = copies(model);
    SmallTraining training;
    training.steps = options.size(200, 40);
    train_small(
        model, [&] { return task.next(32); }, training);
    const std::vector<at::Tensor> trained = copies(model);
    SmallModel other(model_options(static_cast<uint64_t>(seed) + 100));
    save_and_load(model, other);
    const at::NoGradGuard no_gradients;
    const Batch one = task.next(8);
    const Batch two = task.next(8);
    std::vector<at::Tensor> first, second;
    model.forward(one.ids, -1, &first);
    model.forward(two.ids, -1, &second);
    const double in_training = changed(begun, trained);
    const double in_use = changed(trained, copies(model));
    const double apart = difference(model.forward(one.ids), other.forward(one.ids));
    const double maps = difference(first[0], second[0]);
    table.add({seed, in_training, in_use, apart, maps});
    learned = learned && in_training > 0.9;
    still = still && in_use == 0;
    same = same && apart == 0;
    moving = moving && maps > 0.01;
  }
  const std::vector<std::string> matrices = attention_matrices(SmallModel(model_options(0)));
  std::string listed;
  for (const std::string& matrix : matrices) listed += (listed.empty() ? "" : ", ") + matrix;
  const bool misprint = std::find(matrices.begin(), matrices.end(), "t") != matrices.end();
  Result result;
  result.findings = {
      {"W_Q, W_K and W_V are learned in training and fixed in use.", std::string(kSeries) + ", 2.1",
       say("training changed %.0f %% of all parameters, use not one; a model read back from a file gives the "
           "same bits: %s",
           100 * table.number(0, "in training"), same ? "yes" : "no"),
       decided(learned && still && same)},
      {"The weights of attention are another thing: they depend on the text.",
       std::string(kSeries) + ", 2.1 and 1.4",
       say("between two texts they differ by up to %.2f",
           table.number(0, "two texts: attention weights differ by")),
       decided(moving)},
      {"One of the three matrices is W^T.", std::string(kSeries) + ", 2.1",
       "what a layer's attention learns here: " + listed + " (out joins the heads); W^T is a misprint of W^K",
       decided(misprint)}};
  result.plots = {{"share of parameters that change",
                   "",
                   "",
                   false,
                   false,
                   {"in training", "in use"},
                   {{"seed 0", {}, {table.number(0, "in training"), table.number(0, "in use")}}}}};
  result.tables.push_back(std::move(table));
  return result;
}

}  // namespace regard::lab
