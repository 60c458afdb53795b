#include "bench/run_bench.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <random>
#include <stdexcept>

#include "regard/model/generate.h"
#include "regard/model/model.h"
#include "regard/model/registry.h"

namespace regard::bench {
namespace {

struct Times {
  double prompt_ms = std::numeric_limits<double>::infinity();
  double decode_ms = std::numeric_limits<double>::infinity();

  void keep_best(const Times& other) {
    prompt_ms = std::min(prompt_ms, other.prompt_ms);
    decode_ms = std::min(decode_ms, other.decode_ms);
  }
};

// Plain tokens in a seeded order: what they say does not change the time.
std::vector<int64_t> make_prompt(const model::Model& model, int64_t tokens) {
  std::mt19937 random(11);
  std::vector<int64_t> ids;
  const auto vocabulary = static_cast<uint32_t>(model.config().vocabulary);
  for (int64_t i = 0; i < tokens; ++i) ids.push_back(random() % (vocabulary / 2) + vocabulary / 4);
  return ids;
}

Times run_ours(model::Model& model, const std::vector<int64_t>& ids, int64_t decode) {
  model::GenerateOptions options;
  options.max_tokens = decode + 1;
  const model::Generation made = model::generate(model, ids, options);
  return {made.prompt_seconds * 1e3, made.decode_seconds * 1e3};
}

Times run_peer(const std::string& command, const nlohmann::json& problem) {
  const std::string line = command + " <<'REGARD_CASE'\n" + problem.dump() + "\nREGARD_CASE\n";
  FILE* pipe = ::popen(line.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("the peer's command could not be started: " + command);
  std::string output;
  std::array<char, 4096> buffer;
  while (const size_t read = std::fread(buffer.data(), 1, buffer.size(), pipe))
    output.append(buffer.data(), read);
  if (::pclose(pipe) != 0) throw std::runtime_error("the peer's command failed: " + command);
  const auto row = nlohmann::json::parse(output, nullptr, /*allow_exceptions=*/false);
  const auto time = [&](const char* name) {
    if (!row.is_object() || !row.contains(name) || !row[name].is_number() || row[name].get<double>() <= 0) {
      throw std::runtime_error("the peer's command must print one JSON object with a time \"" +
                               std::string(name) + "\": " + command);
    }
    return row[name].get<double>();
  };
  return {time("prompt_ms"), time("decode_ms")};
}

}  // namespace

std::vector<nlohmann::ordered_json> run_bench(const RunBench& options) {
  const int threads_before = at::get_num_threads();
  at::set_num_threads(options.threads);
  const model::Loaded ours = model::load(options.model, {.precision = std::nullopt});
  const std::vector<int64_t> ids = make_prompt(*ours.model, options.prompt);
  const nlohmann::json problem = {{"model", model::find_model(options.model).path.string()},
                                  {"ids", ids},
                                  {"decode", options.decode},
                                  {"threads", options.threads}};
  model::Loaded plain;
  if (options.peer_command.empty()) plain = model::load(options.model);

  Times best, peer;
  for (int64_t i = 0; i < options.repeats; ++i) {
    best.keep_best(run_ours(*ours.model, ids, options.decode));
    peer.keep_best(options.peer_command.empty() ? run_ours(*plain.model, ids, options.decode)
                                                : run_peer(options.peer_command, problem));
  }
  at::set_num_threads(threads_before);

  const auto row = [&](const char* op, int64_t tokens, double ours_ms, double peer_ms) {
    nlohmann::ordered_json columns;
    columns["op"] = op;
    columns["model"] = options.model;
    columns["precision"] = model::name(ours.precision);
    columns["tokens"] = tokens;
    columns["threads"] = options.threads;
    columns["clock"] = "wall";
    columns["ours_ms"] = ours_ms;
    columns["tokens_per_second"] = static_cast<double>(tokens) / ours_ms * 1e3;
    columns["peer"] = options.peer_command.empty() ? "self f32" : options.peer_command;
    columns["peer_ms"] = peer_ms;
    columns["peer_tokens_per_second"] = static_cast<double>(tokens) / peer_ms * 1e3;
    columns["ratio"] = peer_ms / ours_ms;
    return columns;
  };
  return {row("prompt", options.prompt, best.prompt_ms, peer.prompt_ms),
          row("decode", options.decode, best.decode_ms, peer.decode_ms)};
}

}  // namespace regard::bench
