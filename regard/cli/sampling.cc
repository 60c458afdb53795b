#include "regard/cli/sampling.h"

namespace regard::cli {

void add_sampling(CLI::App& verb, model::Sampling& sampling, const std::string& zero) {
  verb.add_option("--temperature", sampling.temperature, zero)
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  verb.add_option("--top-k", sampling.top_k, "Sample among the k most likely tokens (0: all)")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb.add_option("--top-p", sampling.top_p, "Sample among the likeliest tokens that hold this probability")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  verb.add_option("--min-p", sampling.min_p,
                  "Then those at least this share as likely as the most likely one")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  verb.add_option("--repetition-penalty", sampling.repetition_penalty,
                  "Above 1: tokens of the prompt and of the text so far become less likely")
      ->check(CLI::Range(1e-3, 1e3))
      ->capture_default_str();
  verb.add_option("--seed", sampling.seed, "Seed of the sampling")->capture_default_str();
}

}  // namespace regard::cli
