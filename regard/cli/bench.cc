#include <algorithm>
#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/attention_bench.h"
#include "bench/embed_bench.h"
#include "bench/family_bench.h"
#include "bench/memory_bench.h"
#include "bench/roofline.h"
#include "bench/run_bench.h"
#include "regard/cli/bench_linear.h"
#include "regard/cli/bench_train.h"
#include "regard/cli/bench_translate.h"
#include "regard/cli/interrupt.h"
#include "regard/cli/output.h"
#include "regard/cli/verbs.h"
#include "regard/io/atomic_file.h"

// bench: our kernels beside what people use now, alternately in one process. Only ratios of one run mean
// anything.
namespace regard::cli {
namespace {

struct Bench {
  std::string against = "torch";
  std::string op;
  std::string peer_command;
  std::string one_case;
  std::string roofline;
  bool csv = false;
  bool json = false;
  bool quick = false;
  double seconds = 0.0;
  int64_t sentences = 1000;
  int64_t repeats = 3;
  bool quantize = false;
  bench::RunBench run;
};

void warn_about_waiting_threads() {
  const char* policy = std::getenv("OMP_WAIT_POLICY");
  if (policy == nullptr || std::string(policy) != "passive")
    std::cerr
        << "regard: OMP_WAIT_POLICY is set, but not to passive: with two threads libtorch's waiting threads "
           "take the cores that the other side is timed on\n";
}

void print_header() {
  std::cout << std::left << std::setw(17) << "op" << std::setw(14) << "mask" << std::setw(6) << "type"
            << std::right << std::setw(6) << "heads" << std::setw(7) << "Lq" << std::setw(7) << "Lk"
            << std::setw(5) << "D" << std::setw(4) << "thr" << std::setw(11) << "ours ms" << std::setw(11)
            << "peer ms" << std::setw(8) << "ratio" << std::setw(9) << "GFLOP/s" << std::setw(7) << "peak"
            << "  peer\n";
}

void print_row(const nlohmann::ordered_json& row) {
  std::cout << std::left << std::setw(17) << row["op"].get<std::string>() << std::setw(14)
            << row["mask"].get<std::string>() << std::setw(6) << row["dtype"].get<std::string>() << std::right
            << std::setw(6)
            << std::to_string(row["Hq"].get<int>()) + "/" + std::to_string(row["Hkv"].get<int>())
            << std::setw(7) << row["Lq"].get<int64_t>() << std::setw(7) << row["Lk"].get<int64_t>()
            << std::setw(5) << row["Dk"].get<int64_t>() << std::setw(4) << row["threads"].get<int>()
            << std::fixed << std::setprecision(3) << std::setw(11) << row["ours_ms"].get<double>()
            << std::setw(11) << row["peer_ms"].get<double>() << std::setprecision(2) << std::setw(8)
            << row["ratio"].get<double>() << std::setprecision(1) << std::setw(9)
            << row["gflops"].get<double>() << std::setprecision(0) << std::setw(6)
            << 100 * row["peak_share"].get<double>() << "%  " << row["peer"].get<std::string>()
            << (row.contains("observed") ? "  (" + row["observed"].get<std::string>() + ")" : "")
            << (row.contains("pages") ? "  (pages of " + row["pages"].get<std::string>() +
                                            (row.contains("ragged") ? ", ragged)" : ")")
                                      : "")
            << "\n";
}

// A header of the first row's columns, then a line a row; columns that only some rows have stay out.
void print_csv(const nlohmann::ordered_json& row, bool first) {
  static const std::vector<std::string> kOnlySome = {"window", "documents", "period",   "pages",
                                                     "ragged", "dropout",   "observed", "difference"};
  std::string header;
  std::string line;
  for (const auto& [column, value] : row.items()) {
    if (std::find(kOnlySome.begin(), kOnlySome.end(), column) != kOnlySome.end()) continue;
    header += (header.empty() ? "" : ",") + column;
    line += (line.empty() ? "" : ",") + value.dump();
  }
  if (first) std::cout << header << '\n';
  std::cout << line << '\n';
}

std::vector<bench::AttentionCase> chosen_cases(const Bench& options) {
  if (options.one_case.empty()) return bench::attention_cases(options.quick);
  std::string text = options.one_case;
  if (text == "-") text.assign(std::istreambuf_iterator<char>(std::cin), {});
  const auto columns = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (columns.is_discarded()) throw std::invalid_argument("--case is not JSON: " + text.substr(0, 60));
  return {bench::case_from_json(columns)};
}

void run_attention(const Bench& options) {
  catch_interrupts();
  warn_about_waiting_threads();
  const double seconds = options.seconds > 0 ? options.seconds : options.quick ? 0.4 : 2.0;
  const bool table = !options.json && !options.csv;
  std::vector<nlohmann::ordered_json> rows;
  for (const bench::AttentionCase& c : chosen_cases(options)) {
    if (!options.op.empty() && c.op != options.op) continue;
    stop_if_interrupted();
    const auto row = bench::run_attention_case(c, seconds, options.peer_command);
    if (options.json) {
      std::cout << row.dump() << '\n';
    } else if (options.csv) {
      print_csv(row, rows.empty());
    } else {
      if (rows.empty()) print_header();
      print_row(row);
    }
    flush_output();
    rows.push_back(row);
  }
  if (!options.roofline.empty()) {
    io::write_file_atomically(options.roofline, bench::roofline_svg(rows));
    if (table) std::cerr << "roofline: " << options.roofline << '\n';
  }
}

void run_memory(const Bench& options) {
  if (!options.json) std::cout << "scratch bytes of a run, two workers, B=1 H=8 D=64\n";
  for (const auto& row : bench::memory_bench()) {
    if (options.json) {
      std::cout << row.dump() << '\n';
      continue;
    }
    std::cout << std::left << std::setw(10) << row["op"].get<std::string>() << std::setw(20)
              << row["mask"].get<std::string>() << std::right;
    for (size_t i = 0; i < row["Lq"].size(); ++i) {
      std::cout << "  L=" << row["Lq"][i] << std::fixed << std::setprecision(1) << std::setw(8)
                << row["extra_bytes"][i].get<double>() / 1e6 << " MB";
    }
    std::cout << "  grows as L^" << std::setprecision(2) << row["slope"].get<double>() << '\n';
  }
}

void run_family(const Bench& options) {
  catch_interrupts();
  const double seconds = options.seconds > 0 ? options.seconds : options.quick ? 0.3 : 1.5;
  if (!options.json)
    std::cout << std::left << std::setw(15) << "op" << std::setw(14) << "form" << std::setw(18) << "pass"
              << std::right << std::setw(7) << "size" << std::setw(11) << "ours ms" << std::setw(11)
              << "peer ms" << std::setw(8) << "ratio" << std::setw(9) << "error"
              << "  peer\n";
  for (const bench::FamilyCase& c : bench::family_cases(options.quick)) {
    stop_if_interrupted();
    const auto row = bench::run_family_case(c, seconds);
    if (options.json) {
      std::cout << row.dump() << '\n';
    } else {
      std::cout << std::left << std::setw(15) << c.op << std::setw(14) << c.form << std::setw(18)
                << row["pass"].get<std::string>() << std::right << std::setw(7) << c.size << std::fixed
                << std::setprecision(3) << std::setw(11) << row["ours_ms"].get<double>() << std::setw(11)
                << row["peer_ms"].get<double>() << std::setprecision(2) << std::setw(8)
                << row["ratio"].get<double>() << std::setprecision(4) << std::setw(9);
      if (row.contains("error")) {
        std::cout << row["error"].get<double>();
      } else {
        std::cout << '-';
      }
      std::cout << "  " << row["peer"].get<std::string>() << " (" << row["detail"].get<std::string>()
                << ")\n";
    }
    flush_output();
  }
}

void run_embed(const Bench& options) {
  const nlohmann::json row = bench::embed_bench(options.sentences, options.repeats, options.quantize);
  std::cout << (options.json ? row.dump() : row.dump(2)) << '\n';
}

void run_run(Bench options) {
  warn_about_waiting_threads();
  options.run.peer_command = options.peer_command;
  options.run.repeats = options.repeats;
  for (const auto& row : bench::run_bench(options.run)) {
    if (options.json) {
      std::cout << row.dump() << '\n';
      continue;
    }
    std::cout << std::left << std::setw(8) << row["op"].get<std::string>() << std::right << std::setw(6)
              << row["tokens"].get<int64_t>() << " tokens " << std::fixed << std::setprecision(1)
              << std::setw(9) << row["ours_ms"].get<double>() << " ms, "
              << row["tokens_per_second"].get<double>() << " tokens/s; peer " << row["peer_ms"].get<double>()
              << " ms, " << row["peer_tokens_per_second"].get<double>() << " tokens/s; ratio "
              << std::setprecision(2) << row["ratio"].get<double>() << "  (" << row["peer"].get<std::string>()
              << ")\n";
  }
}

}  // namespace

void add_bench(CLI::App& app) {
  auto options = std::make_shared<Bench>();
  CLI::App* verb = app.add_subcommand("bench", "Speed beside what people use now, in one process");
  verb->require_subcommand(1);
  verb->footer("Example: regard bench attention --quick");

  CLI::App* attention = verb->add_subcommand("attention", "Attention kernels beside libtorch's");
  attention->add_option("--against", options->against, "The peer")
      ->check(CLI::IsMember({"torch"}))
      ->capture_default_str();
  attention->add_option("--op", options->op, "Only the rows of one operation")
      ->check(
          CLI::IsMember({"forward", "backward", "forward_backward", "decode", "observe", "custom", "mla"}));
  attention->add_flag("--quick", options->quick, "Fewer rows, under a minute");
  attention->add_option("--seconds", options->seconds, "Time for each row (default: 2, with --quick 0.4)")
      ->check(CLI::PositiveNumber);
  auto* peer_command = attention->add_option("--peer-cmd", options->peer_command,
                                             "A shell command instead of the peer: it gets a case as JSON on "
                                             "standard input and prints an object with "
                                             "its time as \"ours_ms\"");
  peer_command->excludes("--against");
  attention->add_option("--case", options->one_case,
                        "One case as JSON, e.g. '{\"mask\": \"causal\", \"Lq\": 512, "
                        "\"Lk\": 512}'; - reads standard input");
  attention->add_option("--roofline", options->roofline, "Draw the rows under the machine's limits (SVG)");
  auto* json = attention->add_flag("--json", options->json, "One JSON object a line");
  attention->add_flag("--csv", options->csv, "Comma-separated, with a header")->excludes(json);
  attention->footer("Example: regard bench attention --against torch --json");
  attention->callback([options] { run_attention(*options); });

  add_bench_linear(*verb);
  add_bench_train(*verb);
  add_bench_translate(*verb);

  CLI::App* memory = verb->add_subcommand("memory", "How the scratch of each kernel grows with the length");
  memory->add_flag("--json", options->json, "One JSON object a line");
  memory->footer("Example: regard bench memory");
  memory->callback([options] { run_memory(*options); });

  CLI::App* family = verb->add_subcommand(
      "family", "Approximations, scores and softmax heads beside what they stand for, with their error");
  family->add_flag("--quick", options->quick, "Fewer and smaller rows");
  family->add_option("--seconds", options->seconds, "Time for each row (default: 1.5, with --quick 0.3)")
      ->check(CLI::PositiveNumber);
  family->add_flag("--json", options->json, "One JSON object a line");
  family->footer("Example: regard bench family --quick");
  family->callback([options] { run_family(*options); });

  CLI::App* embed =
      verb->add_subcommand("embed", "Sentence embedding beside the same model in plain libtorch");
  embed->add_option("--sentences", options->sentences, "Sentences to embed")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  embed->add_option("--repeats", options->repeats, "Runs of each side; the best counts")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  embed->add_flag("--quantize", options->quantize, "Ours with --quantize; the peer stays in f32");
  embed->add_flag("--json", options->json, "One JSON object on one line");
  embed->footer("Example: regard bench embed --sentences 1000");
  embed->callback([options] { run_embed(*options); });

  CLI::App* run = verb->add_subcommand("run", "A language model's prompt and decoding beside a peer");
  run->add_option("--model", options->run.model, "A name of 'regard models' or a GGUF file")
      ->capture_default_str();
  run->add_option("--prompt", options->run.prompt, "Tokens of the prompt")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  run->add_option("--decode", options->run.decode, "Tokens decoded after the first")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  run->add_option("--threads", options->run.threads, "Threads of both")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  run->add_option("--repeats", options->repeats, "Runs of each side; the best counts")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  run->add_option(
      "--peer-cmd", options->peer_command,
      "A shell command as the peer (default: ourselves in f32): it gets model, ids, decode and threads as "
      "JSON on standard input and prints \"prompt_ms\" and \"decode_ms\"");
  run->add_flag("--json", options->json, "One JSON object a line");
  run->footer("Example: regard bench run --peer-cmd 'python3 bench/peers/llamacpp.py'");
  run->callback([options] { run_run(*options); });
}

}  // namespace regard::cli
