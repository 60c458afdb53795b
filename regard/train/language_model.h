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

// A decoder that learns to continue text. What it saves is a folder in the layout of published Llama models
// (Mistral's where it has a window), which `regard run`, `look` and `score` read.
class LanguageModel final : public Task {
 public:
  // Reads the texts. Throws io::Error and std::invalid_argument as read_recipe() does.
  LanguageModel(const LanguageModelRecipe& recipe, const TrainRecipe& train);
  // Of a recipe of this kind.
  explicit LanguageModel(const Recipe& recipe);

  const std::vector<Parameters::Named>& parameters() const override { return parameters_.all(); }
  at::Tensor loss(int64_t pass) override;
  int64_t tokens(int64_t /*pass*/) override { return train_.batch * train_.length; }
  std::optional<Validation> validate(int64_t step) override;
  void save(const std::filesystem::path& folder) const override;
  std::string find_not_a_number(int64_t pass) override;

  model::Transformer& model() { return *model_; }
  const text::Tokenizer& tokenizer() const { return *tokenizer_; }

 private:
  at::Tensor logits(const at::Tensor& ids);
  std::vector<int32_t> tokens_of(const std::vector<std::filesystem::path>& paths, int64_t* bytes) const;

  TrainRecipe train_;
  std::string tokenizer_json_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::string config_json_;
  Parameters parameters_;
  std::unique_ptr<model::Transformer> model_;
  std::unique_ptr<TokenStream> stream_;
  std::vector<int32_t> valid_;
  double valid_tokens_per_byte_ = 0;
};

}  // namespace regard::train
