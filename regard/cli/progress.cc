#include "regard/cli/progress.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

namespace regard::cli {
namespace {

constexpr int kBarCells = 24;

}  // namespace

Progress::Progress(std::string what, std::string unit)
    : what_(std::move(what)), unit_(std::move(unit)), terminal_(isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() {
  if (drawn_ && terminal_) std::fputs("\r\033[K", stderr);
}

void Progress::update(int64_t done, int64_t all) {
  const auto now = Clock::now();
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  const double since = std::chrono::duration<double>(now - shown_).count();
  if (elapsed < 1.0 || done <= 0 || all <= 0 || since < (terminal_ ? 0.1 : 5.0)) return;
  shown_ = now;
  const double rate = static_cast<double>(done) / elapsed;
  const double left = static_cast<double>(all - done) / rate;
  const auto count = static_cast<long long>(done);
  const auto total = static_cast<long long>(all);
  if (!terminal_) {
    std::fprintf(stderr, "%s: %lld of %lld %s, %.0f/s, %.0f s left\n", what_.c_str(), count, total,
                 unit_.c_str(), rate, left);
  } else {
    const int filled = static_cast<int>(kBarCells * done / all);
    const std::string bar = std::string(filled, '#') + std::string(kBarCells - filled, '.');
    std::fprintf(stderr, "\r\033[K%s [%s] %lld/%lld %s  %.0f/s  %.0f s left", what_.c_str(), bar.c_str(),
                 count, total, unit_.c_str(), rate, left);
  }
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace regard::cli
