#include "regard/train/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "regard/io/atomic_file.h"
#include "regard/io/error.h"

namespace regard::train {
namespace {

// Opens a CSV at its end, after its header and the lines whose first number is at most `step`.
int open_after(const std::filesystem::path& path, const std::string& header, int64_t step) {
  std::string kept = header + '\n';
  {
    std::ifstream old(path);
    std::string line;
    std::getline(old, line);  // the header
    while (std::getline(old, line) && std::strtoll(line.c_str(), nullptr, 10) <= step && !old.eof())
      kept += line + '\n';
  }
  io::write_file_atomically(path, kept);
  const int descriptor = open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (descriptor < 0) io::fail(path.string(), std::strerror(errno));
  return descriptor;
}

}  // namespace

StepLog::StepLog(const std::filesystem::path& folder, int64_t step)
    : steps_path_(folder / "log.csv"),
      validations_path_(folder / "validation.csv"),
      heads_path_(folder / "heads.csv"),
      events_(folder / "events.out.tfevents.0.regard", step) {
  heads_ = open_after(heads_path_, "step,layer,head,entropy,share,spread,contribution", step);
  steps_ = open_after(steps_path_, "step,loss,rate,gradient_norm,tokens,seconds", step);
  validations_ =
      open_after(validations_path_, "step,loss,bits_per_byte,tokens,bleu,chrf,accuracy,best", step);
}

StepLog::~StepLog() {
  if (steps_ >= 0) close(steps_);
  if (validations_ >= 0) close(validations_);
  if (heads_ >= 0) close(heads_);
}

void StepLog::append(int descriptor, const std::filesystem::path& path, const std::string& line) {
  for (size_t done = 0; done < line.size();) {
    const ssize_t written = write(descriptor, line.data() + done, line.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) io::fail(path.string(), std::strerror(errno));
    done += static_cast<size_t>(written);
  }
}

void StepLog::step(const StepReport& report) {
  char line[200];
  std::snprintf(line, sizeof line, "%lld,%.9g,%.6g,%.6g,%lld,%.4f\n", static_cast<long long>(report.step),
                report.loss, report.rate, report.gradient_norm, static_cast<long long>(report.tokens),
                report.seconds);
  append(steps_, steps_path_, line);
  events_.scalars(report.step, {{"train/loss", static_cast<float>(report.loss)},
                                {"train/rate", static_cast<float>(report.rate)},
                                {"train/gradient_norm", static_cast<float>(report.gradient_norm)},
                                {"train/tokens_per_second",
                                 static_cast<float>(static_cast<double>(report.tokens) / report.seconds)}});
}

void StepLog::validation(int64_t step, const Validation& validation, bool best) {
  const auto shown = [](const char* format, const std::optional<double>& value) {
    char text[40];
    return value ? std::string(text, static_cast<size_t>(std::snprintf(text, sizeof text, format, *value)))
                 : std::string();
  };
  append(validations_, validations_path_,
         std::to_string(step) + ',' + shown("%.9g", validation.loss) + ',' +
             shown("%.6g", validation.bits_per_byte) + ',' + std::to_string(validation.tokens) + ',' +
             shown("%.4f", validation.bleu) + ',' + shown("%.4f", validation.chrf) + ',' +
             shown("%.6f", validation.accuracy) + ',' + (best ? '1' : '0') + '\n');
  std::vector<io::Scalar> scalars = {{"validation/loss", static_cast<float>(validation.loss)}};
  const auto add = [&](const char* tag, const std::optional<double>& value) {
    if (value) scalars.push_back({tag, static_cast<float>(*value)});
  };
  if (validation.bits_per_byte > 0) add("validation/bits_per_byte", validation.bits_per_byte);
  add("validation/bleu", validation.bleu);
  add("validation/chrf", validation.chrf);
  add("validation/accuracy", validation.accuracy);
  events_.scalars(step, scalars);
}

void StepLog::heads(int64_t step, const std::vector<lens::HeadState>& heads) {
  std::vector<io::Scalar> scalars;
  std::string lines;
  for (const lens::HeadState& head : heads) {
    char line[200];
    std::snprintf(line, sizeof line, "%lld,%s,%lld,%.6g,%.6g,%.6g,%.6g\n", static_cast<long long>(step),
                  head.layer.c_str(), static_cast<long long>(head.head), head.entropy, head.share,
                  head.spread, head.contribution);
    lines += line;
    std::string tag = "/" + head.layer + "/head" + std::to_string(head.head);
    tag.erase(std::remove(tag.begin(), tag.end(), ' '), tag.end());
    scalars.push_back({"entropy" + tag, static_cast<float>(head.entropy)});
    scalars.push_back({"entropy_share" + tag, static_cast<float>(head.share)});
  }
  append(heads_, heads_path_, lines);
  events_.scalars(step, scalars);
}

void StepLog::sync() {
  if (fsync(heads_) != 0) io::fail(heads_path_.string(), std::strerror(errno));
  events_.sync();
  if (fsync(steps_) != 0) io::fail(steps_path_.string(), std::strerror(errno));
  if (fsync(validations_) != 0) io::fail(validations_path_.string(), std::strerror(errno));
}

}  // namespace regard::train
