#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "regard/model/classifier.h"
#include "regard/train/image_sets.h"
#include "regard/train/recipe.h"
#include "regard/train/task.h"

namespace regard::train {

struct ImageQuality {
  struct Class {
    int64_t images = 0;
    int64_t right = 0;
  };
  int64_t images = 0;
  double accuracy = 0;  // the share whose most likely class is theirs
  double loss = 0;      // nats per picture
  std::vector<Class> classes;
};

// Throws std::invalid_argument for pictures that the model does not take and labels beyond its classes.
ImageQuality evaluate(const model::Vit& model, const model::PixelScale& scale, const LabelledImages& images);

// A Vision Transformer that learns to name pictures. What it saves is a folder in Hugging Face's layout
// (model/vit_config.h), which `regard eval --images` reads.
class Classification final : public Task {
 public:
  // Reads the pictures. Throws io::Error and std::invalid_argument.
  Classification(const ClassifierRecipe& recipe, const TrainRecipe& train);

  const std::vector<Parameters::Named>& parameters() const override { return parameters_.all(); }
  at::Tensor loss(int64_t pass) override;
  int64_t tokens(int64_t /*pass*/) override { return train_.batch; }  // pictures
  std::optional<Validation> validate(int64_t step) override;
  void save(const std::filesystem::path& folder) const override;
  Heads heads() override;

  const model::Vit& model() const { return *model_; }
  const model::PixelScale& scale() const { return scale_; }
  // Which pictures a pass sees: each once before any comes again, in an order of (seed, pass) alone.
  std::vector<int64_t> numbers(int64_t pass) const;
  // These, scaled, moved and turned: [batch, channels, height, width].
  at::Tensor pictures(int64_t pass) const;

 private:
  ImageRecipe data_;
  TrainRecipe train_;
  Initialisation initialisation_;
  LabelledImages images_, valid_;
  model::PixelScale scale_;
  Parameters parameters_;
  std::unique_ptr<model::Vit> model_;
};

}  // namespace regard::train
