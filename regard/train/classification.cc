#include "regard/train/classification.h"

#include <ATen/ATen.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>

#include "regard/io/atomic_file.h"
#include "regard/layer/context.h"
#include "regard/train/model_folder.h"
#include "regard/train/shuffle.h"
#include "regard/train/training_context.h"

namespace regard::train {
namespace {

constexpr int64_t kWatched = 8;   // pictures that heads are watched on
constexpr int64_t kTested = 256;  // pictures of one pass without gradients
// Of a seed, far from the streams of the epochs and of dropout.
constexpr uint64_t kPictureStream = uint64_t{1} << 61;

int64_t count_of(const LabelledImages& images) {
  return images.labels.shape[0];
}

at::Tensor labels_of(const LabelledImages& images, const std::vector<int64_t>& numbers) {
  at::Tensor out = at::empty({static_cast<int64_t>(numbers.size())}, at::kLong);
  std::transform(numbers.begin(), numbers.end(), out.mutable_data_ptr<int64_t>(),
                 [&](int64_t number) { return images.labels.values[static_cast<size_t>(number)]; });
  return out;
}

std::vector<int64_t> range(int64_t begin, int64_t end) {
  std::vector<int64_t> out(static_cast<size_t>(end - begin));
  std::iota(out.begin(), out.end(), begin);
  return out;
}

model::VitConfig config_of(model::VitConfig config, const LabelledImages& images) {
  const std::vector<int64_t>& shape = images.images.shape;
  config.image_height = shape[1];
  config.image_width = shape[2];
  config.channels = shape.size() == 4 ? shape[3] : 1;
  config.classes = 1 + *std::max_element(images.labels.values.begin(), images.labels.values.end());
  if (config.image_height % config.patch != 0 || config.image_width % config.patch != 0) {
    throw std::invalid_argument("model.patch is " + std::to_string(config.patch) + "; the pictures are " +
                                std::to_string(config.image_height) + " x " +
                                std::to_string(config.image_width) + ", and both must be multiples of it");
  }
  if (config.classes < 2) throw std::invalid_argument("the pictures to learn are all of class 0");
  return config;
}

}  // namespace

ImageQuality evaluate(const model::Vit& model, const model::PixelScale& scale, const LabelledImages& images) {
  const at::NoGradGuard no_grad;
  ImageQuality out;
  out.images = count_of(images);
  out.classes.resize(static_cast<size_t>(model.config().classes));
  double sum = 0;
  int64_t right = 0;
  for (int64_t begin = 0; begin < out.images; begin += kTested) {
    const std::vector<int64_t> numbers = range(begin, std::min(out.images, begin + kTested));
    const at::Tensor labels = labels_of(images, numbers);
    if (const int64_t largest = labels.max().item<int64_t>(); largest >= model.config().classes) {
      throw std::invalid_argument("there is the label " + std::to_string(largest) + "; the model knows " +
                                  std::to_string(model.config().classes) + " classes");
    }
    layer::Context context;
    const at::Tensor logits =
        model.logits(model.states(model::pixels(images.images, numbers, scale), context).back());
    sum += at::cross_entropy_loss(logits, labels, {}, at::Reduction::Sum).item<double>();
    const at::Tensor hits = logits.argmax(-1).eq(labels);
    for (size_t i = 0; i < numbers.size(); ++i) {
      ImageQuality::Class& of = out.classes[images.labels.values[static_cast<size_t>(numbers[i])]];
      const int64_t hit = hits.const_data_ptr<bool>()[i] ? 1 : 0;
      ++of.images;
      of.right += hit;
      right += hit;
    }
  }
  out.accuracy = static_cast<double>(right) / static_cast<double>(out.images);
  out.loss = sum / static_cast<double>(out.images);
  return out;
}

Classification::Classification(const ClassifierRecipe& recipe, const TrainRecipe& train)
    : data_(recipe.data),
      train_(train),
      initialisation_(recipe.initialisation),
      images_(read_labelled(recipe.data.train, recipe.data.train_labels)),
      scale_(model::pixel_scale(images_.images)),
      parameters_(recipe.initialisation, "", train.seed,
                  train.bf16 ? layer::Weight::Products::bf16 : layer::Weight::Products::f32) {
  const model::VitConfig config = config_of(recipe.model, images_);
  model_ = std::make_unique<model::Vit>(config, parameters_);
  if (count_of(images_) < train.batch) {
    throw std::invalid_argument("train.batch is " + std::to_string(train.batch) + "; there are only " +
                                std::to_string(count_of(images_)) + " pictures");
  }
  if (recipe.data.valid.empty()) return;
  valid_ = read_labelled(recipe.data.valid, recipe.data.valid_labels);
}

std::vector<int64_t> Classification::numbers(int64_t pass) const {
  const int64_t of_an_epoch = count_of(images_) / train_.batch;
  std::mt19937_64 generator = generator_of(train_.seed, static_cast<uint64_t>(pass / of_an_epoch));
  const std::vector<int64_t> order = shuffled(count_of(images_), generator);
  const auto begin = order.begin() + pass % of_an_epoch * train_.batch;
  return {begin, begin + train_.batch};
}

at::Tensor Classification::pictures(int64_t pass) const {
  const at::Tensor images = model::pixels(images_.images, numbers(pass), scale_);
  if (data_.shift == 0 && !data_.flip) return images;
  std::mt19937_64 generator = generator_of(train_.seed, kPictureStream + static_cast<uint64_t>(pass));
  const auto moved = [&](int64_t size) {
    const auto by = static_cast<int64_t>(below(generator, 2 * static_cast<uint64_t>(data_.shift) + 1));
    return (at::arange(size, at::kLong) + (by - data_.shift)).clamp(0, size - 1);
  };
  std::vector<at::Tensor> out;
  for (const at::Tensor& image : images.unbind()) {
    const at::Tensor rows = moved(image.size(1)), columns = moved(image.size(2));
    const bool turned = data_.flip && below(generator, 2) == 1;
    out.push_back(image.index_select(1, rows).index_select(2, turned ? columns.flip(0) : columns));
  }
  return at::stack(out);
}

at::Tensor Classification::loss(int64_t pass) {
  layer::Context context = training_context(train_, kDropoutStream + static_cast<uint64_t>(pass));
  return at::cross_entropy_loss(model_->logits(model_->states(pictures(pass), context).back()),
                                labels_of(images_, numbers(pass)), {}, at::Reduction::Mean, -100,
                                train_.label_smoothing);
}

std::optional<Validation> Classification::validate(int64_t /*step*/) {
  if (valid_.labels.values.empty()) return std::nullopt;
  const ImageQuality found = evaluate(*model_, scale_, valid_);
  Validation out;
  out.loss = found.loss;
  out.tokens = found.images;
  out.accuracy = found.accuracy;
  return out;
}

Heads Classification::heads() {
  const at::NoGradGuard no_grad;
  const LabelledImages& from = valid_.labels.values.empty() ? images_ : valid_;
  lens::HeadWatch watch;
  layer::Context context;
  context.recorder = &watch;
  model_->states(model::pixels(from.images, range(0, std::min(kWatched, count_of(from))), scale_), context);
  return heads_of(watch, initialisation_, model_->config().width);
}

void Classification::save(const std::filesystem::path& folder) const {
  save_model_folder(folder, model::to_json(model_->config()).dump(2), "", parameters_.published());
  io::write_file_atomically(folder / "preprocessor_config.json", model::to_json(scale_).dump(2));
}

}  // namespace regard::train
