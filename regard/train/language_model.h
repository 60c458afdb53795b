#pragma once

#include <memory>
#include <string>
#include <vector>

#include "regard/model/transformer.h"
#include "regard/text/tokenizer.h"
#include "regard/train/recipe.h"
#include "regard/train/task.h"
#include "regard/train/token_stream.h"

namespace regard::train {

// A decoder that learns to continue text. What it saves is a folder in the layout of published models that it
// equals (decoder_config.h), which `regard run`, `look` and `score` read.
class LanguageModel final : public Task {
 public:
  // Reads the texts. Throws io::Error and std::invalid_argument as read_recipe() does.
  LanguageModel(const LanguageModelRecipe& recipe, const TrainRecipe& train);
  // Of a recipe of this kind.
  explicit LanguageModel(const Recipe& recipe);

  const std::vector<Parameters::Named>& parameters() const override { return parameters_.all(); }
  at::Tensor loss(int64_t pass) override;
  int64_t tokens(int64_t pass) override;  // that are predicted
  std::optional<Validation> validate(int64_t step) override;
  void save(const std::filesystem::path& folder) const override;
  Heads heads() override;

  // Takes the numbers of a model of the same shape instead of a random start. A model with more key and value
  // heads gives each of ours the mean of its group's (model/pool_heads.h). Throws io::Error for what does not
  // fit.
  void begin_from(const std::filesystem::path& folder) override;

  model::Transformer& model() { return *model_; }
  // By their published names; the values are those that are trained.
  std::vector<Parameters::Named> published() const { return parameters_.published(); }
  const text::Tokenizer& tokenizer() const { return *tokenizer_; }

 private:
  // Of what follows; the sum or mean over all targets but kNothing.
  at::Tensor cross_entropy(const at::Tensor& hidden, const at::Tensor& next, bool mean, double smoothing);
  TokenText tokens_of(const std::vector<std::filesystem::path>& paths, int64_t& bytes) const;
  // What a recipe of made-up texts asks for; stream 0 to train, 1 to validate.
  TokenText made_up(int64_t count, uint64_t stream, int64_t& bytes) const;

  LanguageModelRecipe recipe_;
  TrainRecipe train_;
  std::string tokenizer_json_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::string config_json_;
  Parameters parameters_;
  std::unique_ptr<model::Transformer> model_;
  std::unique_ptr<TokenStream> stream_;
  TokenText valid_;
  double valid_tokens_per_byte_ = 0;
};

}  // namespace regard::train
