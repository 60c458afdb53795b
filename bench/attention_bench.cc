#include "bench/attention_bench.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <stdexcept>

#include "bench/attention_sides.h"
#include "bench/machine.h"
#include "regard/kernel/targets.h"

namespace regard::bench {
namespace {

using kernel::DType;

at::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return at::kBFloat16;
    case DType::f16:
      return at::kHalf;
    case DType::f32:
      break;
  }
  return at::kFloat;
}

double key_bytes(const AttentionCase& c) {
  for (const auto type :
       {kernel::CacheType::f32, kernel::CacheType::bf16, kernel::CacheType::f16, kernel::CacheType::i8}) {
    if (c.pages == kernel::name(type)) return static_cast<double>(kernel::bytes(type));
  }
  return static_cast<double>(kernel::bytes(c.dtype));
}

// The time that a command prints for a case.
double peer_milliseconds(const std::string& command, const AttentionCase& c) {
  const std::string line = command + " <<'REGARD_CASE'\n" + case_to_json(c).dump() + "\nREGARD_CASE\n";
  FILE* pipe = ::popen(line.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("the peer's command could not be started: " + command);
  std::string output;
  std::array<char, 4096> buffer;
  while (const size_t read = std::fread(buffer.data(), 1, buffer.size(), pipe))
    output.append(buffer.data(), read);
  const int status = ::pclose(pipe);
  if (status != 0) throw std::runtime_error("the peer's command failed: " + command);
  const auto row = nlohmann::json::parse(output, nullptr, /*allow_exceptions=*/false);
  if (!row.is_object() || !row.contains("ours_ms") || !row["ours_ms"].is_number() ||
      row["ours_ms"].get<double>() <= 0) {
    throw std::runtime_error("the peer's command must print one JSON object with a time \"ours_ms\": " +
                             command);
  }
  return row["ours_ms"];
}

AttentionCase square(const std::string& mask, int64_t length, int64_t features, int threads) {
  AttentionCase c;
  c.mask = mask;
  c.queries = c.keys = length;
  c.key_features = c.value_features = features;
  c.threads = threads;
  if (mask == "window") c.window = 128;
  return c;
}

AttentionCase decode(DType dtype, DType peer_dtype, int threads) {
  AttentionCase c;
  c.op = "decode";
  c.dtype = dtype;
  c.peer_dtype = peer_dtype;
  c.heads = 32;
  c.kv_heads = 8;
  c.queries = 1;
  c.keys = 8192;
  c.key_features = c.value_features = 128;
  c.threads = threads;
  return c;
}

std::vector<AttentionCase> backward_cases(bool quick) {
  std::vector<AttentionCase> cases;
  const auto add = [&](AttentionCase c, const char* op) {
    c.op = op;
    cases.push_back(c);
  };
  for (const int threads : {1, 2}) {
    if (quick && threads == 2) continue;
    for (const int64_t length : {512, 1024, 2048}) add(square("none", length, 64, threads), "backward");
    for (const int64_t length : {512, 1024}) add(square("causal", length, 64, threads), "backward");
    add(square("none", 1024, 128, threads), "backward");
    AttentionCase half = square("none", 1024, 64, threads);
    half.dtype = half.peer_dtype = DType::bf16;
    add(half, "forward_backward");
    add(square("window", 4096, 64, threads), "forward_backward");
    AttentionCase latent = square("causal", 2048, 192, threads);
    latent.value_features = 128;
    latent.heads = latent.kv_heads = 16;
    add(latent, "forward_backward");
    AttentionCase dropped = square("none", 1024, 64, threads);
    dropped.dropout = 0.1;
    add(dropped, "forward_backward");
  }
  AttentionCase one_head = square("none", 2048, 64, 2);
  one_head.heads = one_head.kv_heads = 1;
  add(one_head, "backward");
  return cases;
}

// Sparse masks against the same table given to libtorch.
std::vector<AttentionCase> mask_cases(bool quick) {
  const auto masked = [](const std::string& mask, int64_t length) {
    AttentionCase c = square(mask, length, 64, 1);
    if (mask == "documents" || mask == "segments") c.documents = 8;
    if (mask == "stride") c.period = 3;
    return c;
  };
  if (quick) return {masked("segments", 4096), masked("stride", 2048)};
  std::vector<AttentionCase> cases;
  for (const char* mask : {"documents", "segments", "stride", "bigbird", "longformer", "neighbourhood"}) {
    AttentionCase c = masked(mask, 4096);
    for (const int threads : {1, 2}) {
      for (const char* op : {"forward", "forward_backward"}) {
        c.op = op;
        c.threads = threads;
        cases.push_back(c);
      }
    }
  }
  return cases;
}

// Keys in pages: each type, a ragged batch, latents by both paths.
std::vector<AttentionCase> page_cases(bool quick) {
  std::vector<AttentionCase> cases;
  for (const int threads : {1, 2}) {
    if (quick && threads == 2) continue;
    for (const char* type : {"f32", "bf16", "f16", "i8"}) {
      AttentionCase c = decode(DType::f32, DType::f32, threads);
      c.pages = type;
      if (!quick || c.pages == "i8") cases.push_back(c);
    }
    AttentionCase ragged = decode(DType::f32, DType::f32, threads);
    ragged.batch = 8;
    ragged.keys = 2048;
    ragged.pages = "f32";
    ragged.ragged = true;
    cases.push_back(ragged);
    for (const int64_t queries : {1, 1024}) {
      AttentionCase latent = square("causal", 4096, 576, threads);
      latent.op = "mla";
      latent.peer = "naive";
      latent.value_features = 512;
      latent.heads = 16;
      latent.kv_heads = 1;
      latent.pages = "f32";
      latent.queries = queries;
      if (queries > 1 || quick) latent.keys = 1024;  // the naive path makes keys and values each time
      if (!quick || queries == 1) cases.push_back(latent);
    }
  }
  return cases;
}

std::vector<AttentionCase> own_cases(bool quick) {
  std::vector<AttentionCase> cases;
  const auto add = [&](const char* mask, int64_t length, int64_t top_k, const char* peer) {
    AttentionCase c = square(mask, length, 64, 1);
    c.op = "observe";
    c.top_k = top_k;
    c.peer = peer;
    cases.push_back(c);
  };
  for (const int64_t length : {1024, 2048, 4096, 8192}) {
    if (quick && length > 2048) continue;
    for (const int64_t top_k : {0, 8}) add("none", length, top_k, "self");
  }
  for (const int64_t top_k : {0, 8}) add("causal", 2048, top_k, "self");
  for (const int64_t top_k : {0, 8}) add("none", 2048, top_k, "unfused");
  for (const int64_t length : {512, 2048}) {
    if (quick && length == 2048) continue;
    AttentionCase c = square("causal", length, 64, 1);
    c.op = "custom";
    c.peer = "self";
    cases.push_back(c);
  }
  for (const int64_t length : {128, 512, 1024, 2048, 4096}) {
    if (quick && length > 512) continue;
    AttentionCase c = square("none", length, 64, 1);
    c.peer = "unfused";
    cases.push_back(c);
  }
  return cases;
}

}  // namespace

std::vector<AttentionCase> attention_cases(bool quick) {
  std::vector<AttentionCase> cases;
  for (const int threads : {1, 2})
    for (const int64_t features : {64, 128})
      for (const int64_t length : {128, 512, 1024, 2048, 4096})
        for (const char* mask : {"none", "causal"}) {
          if (quick && (features == 128 || length == 4096 || (threads == 2 && length != 1024))) continue;
          cases.push_back(square(mask, length, features, threads));
        }
  for (const int threads : {1, 2}) {
    cases.push_back(square("window", 4096, 64, threads));
    if (!quick) cases.push_back(square("window", 4096, 128, threads));
    cases.push_back(decode(DType::f32, DType::f32, threads));
    cases.push_back(decode(DType::bf16, DType::f32, threads));
  }
  for (const AttentionCase& c : backward_cases(quick)) cases.push_back(c);
  for (const AttentionCase& c : mask_cases(quick)) cases.push_back(c);
  for (const AttentionCase& c : page_cases(quick)) cases.push_back(c);
  for (const AttentionCase& c : own_cases(quick)) cases.push_back(c);
  return cases;
}

nlohmann::ordered_json run_attention_case(const AttentionCase& c, double seconds,
                                          const std::string& peer_command) {
  const int threads_before = at::get_num_threads();
  at::set_num_threads(c.threads);
  at::manual_seed(1);
  const auto make = [&](int64_t heads, int64_t length, int64_t features) {
    return at::randn({c.batch, heads, length, features}, at::kFloat);
  };
  const at::Tensor q = make(c.heads, c.queries, c.key_features);
  const at::Tensor k = make(c.kv_heads, c.keys, c.key_features);
  const at::Tensor v = make(c.kv_heads, c.keys, c.value_features);
  const auto ours_type = scalar_type(c.dtype);
  const auto peer_type = scalar_type(c.peer_dtype);
  const at::Tensor grad_out = make(c.heads, c.queries, c.value_features);
  const auto mine = make_ours(c, {q.to(ours_type), k.to(ours_type), v.to(ours_type), grad_out.to(ours_type)});
  OurSide& ours = *mine;
  const bool in_process = peer_command.empty();
  std::unique_ptr<Side> peer;
  if (in_process)
    peer = make_peer(c, {q.to(peer_type), k.to(peer_type), v.to(peer_type), grad_out.to(peer_type)});

  const Machine machine = measure_machine(ours.parallel());
  ours.run();
  double difference = 0;
  if (in_process) {
    peer->run();
    const at::NoGradGuard no_grad;
    difference = (ours.result().to(at::kFloat) - peer->result().to(at::kFloat)).abs().max().item<double>();
  }
  const bool alone = c.threads == 1;
  const auto now = [&] { return alone ? thread_seconds() : wall_seconds(); };
  double best_ours = 1e30;
  double best_peer = 1e30;
  const double start = wall_seconds();
  // Three rounds at least, but one is enough of those that take long.
  for (int i = 0; i == 0 || wall_seconds() - start < (i < 3 ? 4 * seconds : seconds); ++i) {
    const double a = now();
    ours.run();
    const double b = now();
    best_ours = std::min(best_ours, b - a);
    if (!in_process) continue;
    peer->run();
    best_peer = std::min(best_peer, now() - b);
  }
  at::set_num_threads(threads_before);
  if (!in_process) best_peer = peer_milliseconds(peer_command, c) * 1e-3;

  const bool backward = c.op == "backward" || c.op == "forward_backward";
  const double key_products = (c.op == "backward" ? 3.0 : backward ? 4.0 : 1.0);
  const double value_products = (c.op == "backward" ? 2.0 : backward ? 3.0 : 1.0);
  const CaseMask mask(c);
  // Of a ragged batch the mean.
  const double pairs =
      c.ragged ? static_cast<double>(c.queries * c.keys * (c.batch + 1)) / static_cast<double>(2 * c.batch)
               : mask.visible_pairs();
  const double operations = 2.0 * static_cast<double>(c.batch * c.heads) * pairs *
                            (key_products * static_cast<double>(c.key_features) +
                             value_products * static_cast<double>(c.value_features));
  const double kv_bytes =
      (c.ragged ? pairs / static_cast<double>(c.queries * c.keys) : 1.0) *
      static_cast<double>(c.batch * c.kv_heads * c.keys * (c.key_features + c.value_features)) * key_bytes(c);
  const double rows = static_cast<double>(c.batch * c.heads * c.queries);
  const double row_features = static_cast<double>(c.key_features + c.value_features);
  const double moved = (rows * row_features * (backward ? 2.0 : 1.0) +
                        (backward ? rows * static_cast<double>(c.value_features) : 0)) *
                           static_cast<double>(kernel::bytes(c.dtype)) +
                       kv_bytes * (backward ? 2.0 : 1.0);
  const double gflops = operations / best_ours * 1e-9;
  const std::string observed =
      c.top_k > 0 ? "entropy, column sums, top " + std::to_string(c.top_k) : "entropy, column sums";
  nlohmann::ordered_json row;
  row["op"] = c.op;
  row["form"] = "softmax";
  row["mask"] = c.mask;
  add_sizes(c, row);
  row["clock"] = alone ? "thread" : "wall";
  row["ours_ms"] = best_ours * 1e3;
  row["peer"] = in_process ? c.peer : peer_command;
  row["peer_dtype"] = kernel::name(c.peer_dtype);
  row["peer_ms"] = best_peer * 1e3;
  row["ratio"] = best_peer / best_ours;
  row["gflops"] = gflops;
  row["peak_share"] = gflops / machine.peak_gflops;
  row["extra_bytes"] = nullptr;  // where it is not known
  if (const auto bytes = ours.extra_bytes()) row["extra_bytes"] = *bytes;
  row["live_tiles"] = c.ragged ? pairs / static_cast<double>(c.queries * c.keys) : ours.live_tiles(mask);
  if (c.window > 0) row["window"] = c.window;
  if (c.documents > 0) row["documents"] = c.documents;
  if (c.period > 0) row["period"] = c.period;
  if (!c.pages.empty()) row["pages"] = c.pages;
  if (c.ragged) row["ragged"] = true;
  if (c.dropout > 0) row["dropout"] = c.dropout;
  if (c.op == "observe") row["observed"] = observed;
  row["intensity"] = operations / moved;
  if (in_process) row["difference"] = difference;
  row["isa"] = kernel::active_target();
  row["peak_gflops"] = machine.peak_gflops;
  row["read_gbytes"] = machine.read_gbytes;
  row["kv_gbytes"] = kv_bytes / best_ours * 1e-9;
  return row;
}

}  // namespace regard::bench
