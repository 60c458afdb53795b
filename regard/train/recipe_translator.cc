// The tables of `kind = "translator"`.
#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "regard/train/names.h"
#include "regard/train/recipe_parts.h"

namespace regard::train {
namespace {

constexpr Name<text::VocabularyOptions::Kind> kVocabularies[] = {
    {"unigram", text::VocabularyOptions::Kind::unigram}, {"bpe", text::VocabularyOptions::Kind::bpe}};
constexpr Name<BleuTokens> kBleuTokens[] = {
    {"13a", BleuTokens::mteval_13a}, {"zh", BleuTokens::chinese}, {"none", BleuTokens::spaces}};
constexpr Name<layer::Activation> kActivations[] = {{"relu", layer::Activation::relu},
                                                    {"gelu", layer::Activation::gelu},
                                                    {"gelu_tanh", layer::Activation::gelu_tanh},
                                                    {"silu", layer::Activation::silu}};
constexpr Name<layer::NormPlace> kPlaces[] = {{"pre", layer::NormPlace::pre},
                                              {"post", layer::NormPlace::post}};
constexpr Name<kernel::NormForm> kNorms[] = {{"harvard", kernel::NormForm::harvard},
                                             {"layer", kernel::NormForm::layer}};
constexpr Name<model::RnnAttention> kAttentions[] = {{"none", model::RnnAttention::none},
                                                     {"additive", model::RnnAttention::additive},
                                                     {"dot", model::RnnAttention::dot},
                                                     {"general", model::RnnAttention::general},
                                                     {"concat", model::RnnAttention::concat}};
constexpr int64_t kWidest = int64_t{1} << 16;

template <class Kind, size_t count>
Kind word(RecipeTable& table, const char* key, const Name<Kind> (&names)[count]) {
  return kind_named(key, table.text(key, names[0].name), names);
}

void read_files(RecipeTable& table, const std::filesystem::path& folder, ParallelRecipe& out) {
  out.train = read_paths(table, "train", folder);
  out.valid = read_paths(table, "valid", folder);
  out.swap = table.flag("swap", false);
  out.tokenizer = table.text("tokenizer", "");
  const bool learned = table.has("vocabulary");
  RecipeTable vocabulary = table.table("vocabulary");
  out.vocabulary.kind = word(vocabulary, "kind", kVocabularies);
  out.vocabulary.size = vocabulary.integer("size", out.vocabulary.size, 5, 1 << 20);
  out.vocabulary.character_coverage = vocabulary.number("coverage", 1.0, 1e-6, 1.0);
  out.vocabulary.byte_fallback = vocabulary.flag("byte_fallback", false);
  vocabulary.finish();
  if (out.train.empty()) {
    throw std::invalid_argument(table.place("train") +
                                " is missing: a TSV file, a list of them, or a task instead");
  }
  if (learned && !out.tokenizer.empty()) {
    throw std::invalid_argument(table.place("vocabulary") + " and " + table.place("tokenizer") +
                                " exclude each other");
  }
}

ParallelRecipe read_data(RecipeTable table, const std::filesystem::path& folder) {
  ParallelRecipe out;
  if (table.has("task")) {
    read_generated(table, out.generated.emplace(), out.generated_train, out.generated_valid);
  } else {
    read_files(table, folder, out);
  }
  out.max_length = table.integer("max_length", out.max_length, 2, 1 << 16);
  out.bleu_tokens = word(table, "bleu_tokens", kBleuTokens);
  table.finish();
  return out;
}

void read_common(RecipeTable& table, model::TranslatorConfig& out) {
  out.width = table.integer("width", 256, 1, kWidest);
  out.tied = table.flag("tied", true);
  out.dropout = table.number("dropout", 0.1, 0, 0.99);
}

model::TransformerTranslatorConfig read_transformer(RecipeTable& table) {
  model::TransformerTranslatorConfig out;
  read_common(table, out);
  const int64_t layers = table.integer("layers", 3, 1, 256);
  out.encoder_layers = table.integer("encoder_layers", layers, 1, 256);
  out.decoder_layers = table.integer("decoder_layers", layers, 1, 256);
  out.heads = table.integer("heads", 4, 1, 1024);
  out.feed_forward = table.integer("feed_forward", 4 * out.width, 1, 4 * kWidest);
  out.activation = word(table, "activation", kActivations);
  out.norm_place = word(table, "norm_place", kPlaces);
  out.norm = word(table, "norm", kNorms);
  out.epsilon = table.number("epsilon", out.epsilon, 1e-30, 0.1);
  out.attention_dropout = table.number("attention_dropout", out.dropout, 0, 0.99);
  if (out.width % out.heads != 0 || out.width % 2 != 0) {
    throw std::invalid_argument(table.place("width") + " is " + std::to_string(out.width) +
                                "; it must be even and a multiple of heads (" + std::to_string(out.heads) +
                                ")");
  }
  return out;
}

model::RnnTranslatorConfig read_rnn(RecipeTable& table) {
  model::RnnTranslatorConfig out;
  read_common(table, out);
  out.embedding = table.integer("embedding", 256, 1, kWidest);
  out.encoder_width = table.integer("encoder_width", out.width / 2, 1, kWidest);
  const int64_t layers = table.integer("layers", 1, 1, 256);
  out.encoder_layers = table.integer("encoder_layers", layers, 1, 256);
  out.decoder_layers = table.integer("decoder_layers", layers, 1, 256);
  out.readout = table.integer("readout", out.embedding, 1, kWidest);
  out.attention = word(table, "attention", kAttentions);
  out.attention_size = table.integer("attention_size", out.width, 1, kWidest);
  out.input_feeding = table.flag("input_feeding", false);
  if (out.tied && out.readout != out.embedding) {
    throw std::invalid_argument(table.place("readout") + " is " + std::to_string(out.readout) +
                                "; with tied it must be embedding (" + std::to_string(out.embedding) + ")");
  }
  if (out.attention == model::RnnAttention::dot && out.width != 2 * out.encoder_width) {
    throw std::invalid_argument(table.place("width") + " is " + std::to_string(out.width) +
                                "; with attention dot it must be twice encoder_width (" +
                                std::to_string(out.encoder_width) + ")");
  }
  const bool feeds =
      out.attention != model::RnnAttention::none && out.attention != model::RnnAttention::additive;
  if (out.input_feeding && !feeds) {
    throw std::invalid_argument(table.place("input_feeding") +
                                " is true; attention must then be dot, general or concat");
  }
  return out;
}

}  // namespace

TranslatorRecipe read_translator(RecipeTable data, RecipeTable model, const std::filesystem::path& folder) {
  TranslatorRecipe out;
  out.data = read_data(std::move(data), folder);
  const std::string architecture = model.text("architecture", "transformer");
  if (architecture == "transformer") {
    out.model = read_transformer(model);
  } else if (architecture == "rnn") {
    out.model = read_rnn(model);
  } else {
    throw std::invalid_argument(model.place("architecture") + " is \"" + architecture +
                                "\"; known are \"transformer\", \"rnn\"");
  }
  // Sinusoids and recurrences reach beyond what was learned.
  std::visit([&](auto& config) { config.max_positions = std::max<int64_t>(1024, out.data.max_length); },
             out.model);
  out.initialisation = read_initialisation(model, "xavier_uniform", 0);
  model.finish();
  return out;
}

TrainRecipe read_translator_training(RecipeTable table, const TranslatorRecipe& recipe) {
  TrainRecipe out =
      read_training(table, std::visit([](const auto& config) { return config.width; }, recipe.model));
  out.batch_tokens = table.integer("batch_tokens", out.batch_tokens, 2 * recipe.data.max_length, 1 << 24);
  out.smoothing = smoothing_named(table.text("smoothing", "torch"));
  out.score_every = table.integer("score_every", out.score_every, 0, kManySteps);
  out.score_texts = table.integer("score_texts", out.score_texts, 0, kManySteps);
  out.diversity = table.number("diversity", out.diversity, -1e6, 1e6);
  out.best = metric_named(table.text("best", recipe.data.generated ? "accuracy" : "loss"));
  table.finish();
  const bool recurs = std::holds_alternative<model::RnnTranslatorConfig>(recipe.model);
  const char* refused = out.bf16                ? "precision"
                        : out.checkpoint_layers ? "checkpoint_layers"
                        : out.diversity != 0    ? "diversity"
                                                : nullptr;
  if (recurs && refused != nullptr) {
    throw std::invalid_argument(table.place(refused) +
                                " is set; only model.architecture = \"transformer\" takes it");
  }
  if (out.score_every % out.validate_every != 0) {
    throw std::invalid_argument(table.place("score_every") + " is " + std::to_string(out.score_every) +
                                "; it must be a multiple of validate_every (" +
                                std::to_string(out.validate_every) + ")");
  }
  return out;
}

}  // namespace regard::train
