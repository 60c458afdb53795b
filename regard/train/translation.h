#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "regard/model/translator.h"
#include "regard/text/tokenizer.h"
#include "regard/train/parallel_text.h"
#include "regard/train/recipe.h"
#include "regard/train/task.h"

namespace regard::train {

// The texts of a recipe, and the vocabulary of both sides.
struct TranslationTexts {
  std::vector<TextPair> train, valid;
  std::string tokenizer_json;
};

// Reads or makes them. A vocabulary that is learned is kept as tokenizer.json in `folder`, that of the
// training, and read from there when the training goes on. Throws io::Error and std::invalid_argument.
TranslationTexts read_texts(const ParallelRecipe& recipe, const std::filesystem::path& folder);

// An encoder-decoder that learns to translate by teacher forcing: each token of the target is predicted from
// the source and the true tokens before it. What it saves is a folder that `regard translate` and `eval` read
// (model/load_translator.h).
class Translation final : public Task {
 public:
  Translation(const TranslatorRecipe& recipe, const TrainRecipe& train, const std::filesystem::path& folder);
  // With another model than the recipe's, which is then only trained: save() writes its parameters alone.
  using MakeModel =
      std::function<std::unique_ptr<model::Translator>(const model::WeightSource&, int64_t vocabulary)>;
  Translation(const TranslatorRecipe& recipe, const TrainRecipe& train, const std::filesystem::path& folder,
              const MakeModel& make);

  const std::vector<Parameters::Named>& parameters() const override { return parameters_.all(); }
  at::Tensor loss(int64_t pass) override;
  int64_t tokens(int64_t pass) override { return batches_->tokens(pass); }  // of targets
  std::optional<Validation> validate(int64_t step) override;
  void save(const std::filesystem::path& folder) const override;
  Heads heads() override;

  model::Translator& model() { return *model_; }
  const text::Tokenizer& tokenizer() const { return *tokenizer_; }
  PairBatches& batches() { return *batches_; }

 private:
  // [tokens, vocabulary] at the places that are learned, and what stands there.
  struct Predicted {
    at::Tensor logits, targets;
  };
  Predicted predict(const PairBatch& batch, layer::Context& context);
  void score(Validation& out);

  TranslatorRecipe recipe_;
  TrainRecipe train_;
  std::vector<TextPair> valid_texts_;
  std::string tokenizer_json_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::string config_json_;  // empty: a model of the caller's
  Parameters parameters_;
  std::unique_ptr<model::Translator> model_;
  std::unique_ptr<PairBatches> batches_, valid_;
  int64_t valid_bytes_ = 0;  // of the references in valid_
};

}  // namespace regard::train
