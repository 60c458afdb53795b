#include <algorithm>
#include <cmath>

#include "regard/io/e5_file.h"
#include "regard/io/gguf.h"
#include "regard/io/model_folder.h"
#include "regard/lab/columns.h"
#include "regard/lab/measures.h"
#include "regard/lab/published.h"
#include "regard/model/registry.h"

// What share of a model the matrices of queries, keys and values are: counted in files that are there, and
// computed for published sizes.
namespace regard::lab {
namespace {

struct Shares {
  int64_t all = 0, qkv = 0, out = 0, embedding = 0;
};

bool has(std::string_view name, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](auto part) { return name.find(part) != std::string_view::npos; });
}

// By the names of Hugging Face's models and of GGUF files.
void add(Shares& shares, const io::Tensor& tensor) {
  const int64_t numbers = tensor.elements();
  if (tensor.type == io::Type::i64) return;  // positions, not learned
  shares.all += numbers;
  if (has(tensor.name, {"attn_q.", "attn_k.", "attn_v.", "self.query.", "self.key.", "self.value.", "q_proj.",
                        "k_proj.", "v_proj."})) {
    shares.qkv += numbers;
  } else if (has(tensor.name,
                 {"attn_output.weight", "attn_output.bias", "attention.output.dense.", "o_proj."})) {
    shares.out += numbers;
  } else if (has(tensor.name,
                 {"token_embd.", "output.weight", "word_embeddings.", "position_embeddings.", "lm_head."})) {
    shares.embedding += numbers;
  }
}

Shares count(const model::ModelLocation& location) {
  Shares shares;
  switch (location.format) {
    case model::ModelFormat::folder: {
      const io::ModelFolder folder = io::ModelFolder::open(location.path);
      for (const io::Safetensors& shard : folder.shards()) {
        for (const io::Tensor& tensor : shard.tensors()) add(shares, tensor);
      }
      break;
    }
    case model::ModelFormat::gguf: {
      const io::Gguf file = io::Gguf::open(location.path);
      for (const io::Tensor& tensor : file.tensors()) add(shares, tensor);
      break;
    }
    case model::ModelFormat::e5: {
      const io::E5File file = io::E5File::open(location.path);
      for (const io::Tensor& tensor : file.tensors()) add(shares, tensor);
      break;
    }
  }
  return shares;
}

// Matrices alone.
Shares compute(const PublishedModel& p) {
  Shares shares;
  shares.qkv = p.layers * p.width * p.head_size * (p.heads + 2 * p.kv_heads);
  shares.out = p.layers * p.width * p.head_size * p.heads;
  shares.embedding = p.vocabulary * p.width * (p.tied ? 1 : 2);
  shares.all =
      shares.qkv + shares.out + shares.embedding + p.layers * p.width * p.feed_forward * (p.gated ? 3 : 2);
  return shares;
}

double percent(int64_t part, int64_t all) {
  return 100.0 * static_cast<double>(part) / static_cast<double>(all);
}

}  // namespace

Result measure_parameters(const Options&) {
  Table table{"parameters",
              "parameters, and shares in percent",
              {text("model"), text("from"), count("parameters"), number("Q, K, V", 1), number("output", 1),
               number("embeddings", 1), number("the rest", 1)},
              {}};
  const auto add_row = [&](const std::string& name, const char* from, const Shares& shares) {
    table.add({name, std::string(from), shares.all, percent(shares.qkv, shares.all),
               percent(shares.out, shares.all), percent(shares.embedding, shares.all),
               percent(shares.all - shares.qkv - shares.out - shares.embedding, shares.all)});
  };
  std::vector<std::string> absent;
  for (const model::KnownModel& known : model::known_models()) {
    if (known.installed()) {
      add_row(known.title, "its file", count(model::find_model(known.name)));
    } else {
      absent.push_back(known.name);
    }
  }
  for (const PublishedModel& published : kPublished) add_row(published.name, "its sizes", compute(published));
  double most = 0;
  std::string whose, shares;
  std::vector<std::string> names;
  Curve qkv{"Q, K, V", {}, {}}, embeddings{"embeddings", {}, {}};
  for (size_t row = 0; row < table.rows.size(); ++row) {
    const double share = table.number(row, "Q, K, V");
    const std::string name = std::get<std::string>(table.rows[row][0]);
    if (share > most) {
      most = share;
      whose = name;
    }
    names.push_back(name);
    qkv.y.push_back(share);
    embeddings.y.push_back(table.number(row, "embeddings"));
    shares += say("%s%s %.0f %%", row > 0 ? ", " : "", name.c_str(), share);
  }
  Result result;
  result.findings = {{"The matrices of Q, K and V are more than half of a large language model.",
                      std::string(kSeries) + ", 1.3", shares + say("; the most: %s", whose.c_str()),
                      decided(most > 50)}};
  for (const std::string& name : absent)
    result.notes.push_back("'regard models get " + name + "' lets its file be counted too.");
  result.plots = {{"share of the parameters, percent", "", "", false, false, names, {qkv, embeddings}}};
  result.tables.push_back(std::move(table));
  return result;
}

}  // namespace regard::lab
