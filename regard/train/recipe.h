#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "regard/layer/rope.h"
#include "regard/model/translator_config.h"
#include "regard/model/vit_config.h"
#include "regard/text/train_vocabulary.h"
#include "regard/train/generated_task.h"
#include "regard/train/optimizer.h"
#include "regard/train/parameters.h"
#include "regard/train/schedule.h"
#include "regard/train/smoothed_loss.h"
#include "regard/train/task.h"
#include "regard/train/translation_score.h"
#include "regard/train/zipf_markov.h"

namespace regard::train {

// What a language model is trained on.
struct TextRecipe {
  std::vector<std::filesystem::path> train;  // UTF-8 texts
  std::vector<std::filesystem::path> valid;  // none: no validation
  std::string documents;                     // what ends a document of a text, such as "\n\n"; empty: none
  std::string tokenizer = "bytes";  // "bytes" (each byte a token), or a model whose tokenizer is taken
  // Or a text that is made up instead of files, of so many tokens; item t is the word "t".
  std::optional<ZipfMarkov> generated;
  // Or so many prompts with answers, see answers.h.
  std::optional<GeneratedTask> task;
  int64_t generated_train = 0, generated_valid = 0;
};

// A decoder of Llama blocks: RMSNorm, rotary positions, grouped heads, SwiGLU; no biases.
struct DecoderRecipe {
  int64_t layers = 4;
  int64_t width = 256;
  int64_t heads = 8;
  int64_t kv_heads = 0;      // 0: heads (MHA); 1: MQA
  int64_t feed_forward = 0;  // 0: 8 / 3 of the width, rounded up to a multiple of 32
  int64_t window = 0;        // keys that a row sees, itself included; 0: all
  int64_t positions = 0;     // that it may be run to; 0: the length of training, with a window any
  double rope_base = 10000;
  layer::RopeScaling rope_scaling;  // none or llama3
  bool tied = true;                 // the head is the token embedding (a full head)
  double dropout = 0;               // of what each part adds to the stream, and of attention weights
  int64_t experts = 0;              // of a mixture in place of each feed-forward; 0: none
  int64_t experts_chosen = 2;       // by each token
  int64_t latent_rank = 0;          // latent attention: of what keys and values are made from; 0: none
  int64_t latent_query_rank = 0;    // the same of queries; 0: straight from the input
  int64_t latent_rope = 0;          // numbers of a head that are rotated; 0: half a head
  enum class Head : uint8_t { full, adaptive, hierarchical };
  Head head = Head::full;
  double head_division = 4;  // adaptive: each cluster of rarer tokens works in so many times fewer numbers
  Initialisation initialisation;
};

struct LanguageModelRecipe {
  TextRecipe data;
  DecoderRecipe model;
};

// What a translator is trained on.
struct ParallelRecipe {
  std::vector<std::filesystem::path> train;  // TSV, see parallel_text.h
  std::vector<std::filesystem::path> valid;  // none: no validation
  bool swap = false;                         // from the second column to the first
  // Or texts that are made up instead of files, so many of each.
  std::optional<GeneratedTask> generated;
  int64_t generated_train = 0, generated_valid = 0;
  // One vocabulary for both languages: learned from `train`, or that of a model folder. A generated task has
  // its words.
  text::VocabularyOptions vocabulary;
  std::string tokenizer;     // a model folder; "": none
  int64_t max_length = 128;  // tokens of either side; longer pairs are left out
  BleuTokens bleu_tokens = BleuTokens::mteval_13a;
};

// Which of model/translator_config.h, with everything but what the vocabulary says.
using TranslatorConfig = std::variant<model::TransformerTranslatorConfig, model::RnnTranslatorConfig>;

struct TranslatorRecipe {
  ParallelRecipe data;
  TranslatorConfig model;
  Initialisation initialisation;
};

// What a classifier of pictures is trained on: IDX files, plain or packed by gzip.
struct ImageRecipe {
  std::filesystem::path train, train_labels;
  std::filesystem::path valid, valid_labels;  // empty: no validation
  int64_t shift = 0;  // in training each picture is moved by up to so many pixels, its edge repeated
  bool flip = false;  // in training half of them are turned left to right
};

struct ClassifierRecipe {
  ImageRecipe data;
  model::VitConfig model;  // with everything but what the pictures say
  Initialisation initialisation;
};

// What all kinds of models share.
struct TrainRecipe {
  uint64_t seed = kSeed;
  int64_t steps = 1000;
  int64_t length = 256;         // language models: tokens of a piece
  int64_t batch = 16;           // language models: pieces of one pass; classifiers: pictures
  int64_t batch_tokens = 4096;  // translators: of one pass at most, both sides and padding included
  int64_t accumulate = 1;       // passes of one step
  OptimizerOptions optimizer;
  Schedule schedule;
  double clip = 1.0;             // largest norm of all gradients; 0: no bound
  double label_smoothing = 0.0;  // the share of the target that is spread
  Smoothing smoothing = Smoothing::torch;
  bool bf16 = false;      // products with factors of bfloat16 and sums of float32; parameters stay float32
  double balance = 0.01;  // of a mixture's balance loss
  double diversity = 0;   // lambda of -lambda D, see layer/diversity.h
  bool checkpoint_layers = false;  // compute each layer again in the backward: memory for time
  int64_t alarm_after = 1000;      // steps after which uniform or dead heads are told; 0: never
  int64_t validate_every = 200;    // steps
  int64_t validation_pieces = 0;   // language models; 0: all of the validation text
  int64_t score_every = 0;         // translators: steps between validations that translate; 0: each does
  int64_t score_texts = 0;         // translators: texts of the validation that are translated; 0: all
  Metric best = Metric::loss;      // of validations: what decides which model is kept
  int64_t patience = 0;            // stop after so many validations without a better one; 0: never
  int64_t save_every = 200;
  int64_t keep = 2;  // newest checkpoints that stay
};

struct Recipe {
  // By `kind`, with the tables [data] and [model].
  std::variant<LanguageModelRecipe, TranslatorRecipe, ClassifierRecipe> task;
  TrainRecipe train;
  // What the file and the settings say, in one order, but for what may change when a training goes on
  // (train.steps, save_every, keep, patience, rate, warmup, clip): two trainings are the same where this is.
  std::string canonical;
};

// A TOML file; `settings` ("train.steps=100") win over it. Paths of data are relative to the file's folder.
// Throws io::Error for a file that cannot be read and std::invalid_argument for what it says: unknown keys
// (with the nearest known one), values out of range, what does not go together.
Recipe read_recipe(const std::filesystem::path& path, const std::vector<std::string>& settings = {});

}  // namespace regard::train
