#include "regard/cli/bench_linear.h"

#include <iomanip>
#include <iostream>
#include <memory>
#include <string>

#include "bench/linear_bench.h"
#include "regard/cli/interrupt.h"
#include "regard/cli/output.h"

namespace regard::cli {
namespace {

struct Options {
  std::string op;
  std::string form;
  bool quick = false;
  bool json = false;
  double seconds = 0.0;
};

void print_header() {
  std::cout << std::left << std::setw(10) << "op" << std::setw(15) << "form" << std::setw(8) << "mask"
            << std::right << std::setw(8) << "L" << std::setw(5) << "D" << std::setw(4) << "thr"
            << std::setw(11) << "ours ms" << std::setw(11) << "us/token" << std::setw(11) << "peer ms"
            << std::setw(8) << "ratio" << std::setw(9) << "GFLOP/s"
            << "  peer\n";
}

void print_row(const nlohmann::ordered_json& row) {
  std::cout << std::left << std::setw(10) << row["op"].get<std::string>() << std::setw(15)
            << row["form"].get<std::string>() << std::setw(8) << row["mask"].get<std::string>() << std::right
            << std::setw(8) << row["Lq"].get<int64_t>() << std::setw(5) << row["Dk"].get<int64_t>()
            << std::setw(4) << row["threads"].get<int>() << std::fixed << std::setprecision(3)
            << std::setw(11) << row["ours_ms"].get<double>() << std::setw(11)
            << row["us_per_token"].get<double>() << std::setw(11) << row["peer_ms"].get<double>()
            << std::setprecision(2) << std::setw(8) << row["ratio"].get<double>() << std::setprecision(1)
            << std::setw(9) << row["gflops"].get<double>() << "  " << row["peer"].get<std::string>() << '\n';
}

void run(const Options& options) {
  catch_interrupts();
  const double seconds = options.seconds > 0 ? options.seconds : options.quick ? 0.2 : 1.0;
  bool first = true;
  for (const bench::LinearBenchCase& c : bench::linear_cases(options.quick)) {
    if (!options.op.empty() && c.op != options.op) continue;
    if (!options.form.empty() && c.form != options.form) continue;
    stop_if_interrupted();
    const auto row = bench::run_linear_case(c, seconds);
    if (options.json) {
      std::cout << row.dump() << '\n';
    } else {
      if (first) print_header();
      print_row(row);
    }
    first = false;
    flush_output();
  }
  if (!options.op.empty() && options.op != "crossover") return;
  if (!options.form.empty() && options.form != "linear") return;
  for (const int64_t features : {64, 128}) {
    stop_if_interrupted();
    const auto row = bench::linear_crossover(features, seconds / 4);
    if (options.json)
      std::cout << row.dump() << '\n';
    else
      std::cout << "faster than causal softmax from L=" << row["length"] << " on (D=" << features << ")\n";
    flush_output();
  }
}

}  // namespace

void add_bench_linear(CLI::App& bench) {
  auto options = std::make_shared<Options>();
  CLI::App* linear =
      bench.add_subcommand("linear", "Linear attention beside softmax attention and its own forward");
  linear->add_option("--op", options->op, "Only the rows of one operation")
      ->check(CLI::IsMember({"forward", "backward", "decode", "crossover"}));
  linear->add_option("--form", options->form, "Only the rows of one form")
      ->check(CLI::IsMember({"linear", "elu", "lightning", "gated", "gated_feature", "delta"}));
  linear->add_flag("--quick", options->quick, "Fewer rows, under a minute");
  linear->add_option("--seconds", options->seconds, "Time for each row (default: 1, with --quick 0.2)")
      ->check(CLI::PositiveNumber);
  linear->add_flag("--json", options->json, "One JSON object a line");
  linear->footer("Example: regard bench linear --quick");
  linear->callback([options] { run(*options); });
}

}  // namespace regard::cli
