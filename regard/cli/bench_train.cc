#include "regard/cli/bench_train.h"

#include <iomanip>
#include <iostream>
#include <memory>
#include <string>

#include "bench/train_bench.h"
#include "regard/cli/interrupt.h"
#include "regard/cli/output.h"

namespace regard::cli {
namespace {

struct Options {
  bool quick = false;
  bool json = false;
  int threads = 1;
  int64_t length = 0;
  double seconds = 0.0;
};

void print_row(const nlohmann::ordered_json& row, bool first) {
  if (first) {
    std::cout << std::left << std::setw(14) << "form" << std::right << std::setw(6) << "L" << std::setw(6)
              << "batch" << std::setw(4) << "thr" << std::setw(11) << "ours ms" << std::setw(11) << "peer ms"
              << std::setw(8) << "ratio" << std::setw(11) << "tokens/s" << std::setw(10) << "ours MB"
              << std::setw(10) << "peer MB"
              << "  peer\n";
  }
  std::cout << std::left << std::setw(14) << row["form"].get<std::string>() << std::right << std::setw(6)
            << row["Lq"].get<int64_t>() << std::setw(6) << row["B"].get<int64_t>() << std::setw(4)
            << row["threads"].get<int>() << std::fixed << std::setprecision(1) << std::setw(11)
            << row["ours_ms"].get<double>() << std::setw(11) << row["peer_ms"].get<double>()
            << std::setprecision(2) << std::setw(8) << row["ratio"].get<double>() << std::setprecision(0)
            << std::setw(11) << row["tokens_per_second"].get<double>() << std::setprecision(1)
            << std::setw(10) << row["ours_mbytes"].get<double>() << std::setw(10)
            << row["peer_mbytes"].get<double>() << "  " << row["peer"].get<std::string>() << '\n';
}

void run(const Options& options) {
  catch_interrupts();
  const double seconds = options.seconds > 0 ? options.seconds : options.quick ? 1.0 : 8.0;
  bool first = true;
  for (const bench::TrainCase& c : bench::train_cases(options.quick)) {
    if (options.length > 0 && c.length != options.length) continue;
    stop_if_interrupted();
    const auto row = bench::run_train_case(c, seconds, options.threads);
    if (options.json)
      std::cout << row.dump() << '\n';
    else
      print_row(row, first);
    first = false;
    flush_output();
  }
}

}  // namespace

void add_bench_train(CLI::App& bench) {
  auto options = std::make_shared<Options>();
  CLI::App* train = bench.add_subcommand(
      "train", "A training step of a decoder beside the same model in plain libtorch modules");
  train->add_option("--length", options->length, "Only the rows of one length")
      ->check(CLI::IsMember({64, 256, 1024}));
  train->add_option("--threads", options->threads, "Threads of both (1: by processor time)")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  train->add_flag("--quick", options->quick, "Two layers and fewer repeats, under a minute");
  train->add_option("--seconds", options->seconds, "Time for each row (default: 8, with --quick 1)")
      ->check(CLI::PositiveNumber);
  train->add_flag("--json", options->json, "One JSON object a line");
  train->footer("Example: regard bench train --quick");
  train->callback([options] { run(*options); });
}

}  // namespace regard::cli
