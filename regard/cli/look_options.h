#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "regard/cli/text_input.h"
#include "regard/lens/make_report.h"
#include "regard/lens/recording.h"

// What a user asks of `look`.
namespace regard::cli {

struct Look {
  TextInput input;
  std::string model = "minilm";
  std::string token;
  std::string on;
  std::optional<int64_t> layer;
  std::optional<int64_t> head;
  std::vector<int64_t> layers;
  bool received = false;
  bool words = false;
  CLI::Option* tokens = nullptr;  // --tokens: the view, or with --qkv the file
  std::string token_file;
  bool hide_special = false;
  bool trace = false;
  bool truncate = false;
  bool json = false;
  std::string compare;
  std::string compare_token;
  std::string pieces;
  std::string qkv;
  std::string as;
  std::string npz;
  std::string png;
  std::string html;
  std::string precision = "f32";
};

void add_options(CLI::App& verb, Look& options);

// Sorts out what belongs to `--tokens`, then refuses options that contradict each other
// (std::invalid_argument).
void check(Look& options);

lens::Precision precision_of(const Look& options);
lens::ReportOptions report_options(const Look& options);

// What to type to see the same text again, up to heads and outputs.
std::string command_of(const Look& options);

}  // namespace regard::cli
