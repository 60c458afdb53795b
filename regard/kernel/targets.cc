#include "regard/kernel/targets.h"

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <stdexcept>

#include "regard/kernel/dispatch.h"

namespace regard::kernel {
namespace {

// A lower bit is a better target, in every version of Highway.
std::vector<int64_t> bits_of(int64_t targets) {
  std::vector<int64_t> bits;
  for (; targets != 0; targets &= targets - 1) bits.push_back(targets & -targets);
  return bits;
}

int64_t runnable_bits() {
  return (hwy::SupportedTargets() & HWY_TARGETS) | HWY_STATIC_TARGET;
}

std::vector<std::string> names_of(int64_t targets) {
  std::vector<std::string> names;
  for (const int64_t bit : bits_of(targets)) names.emplace_back(hwy::TargetName(bit));
  return names;
}

int64_t find(const std::string& name, const char* where) {
  std::string known;
  for (const int64_t bit : bits_of(runnable_bits())) {
    if (name == hwy::TargetName(bit)) return bit;
    known += known.empty() ? "" : ", ";
    known += hwy::TargetName(bit);
  }
  throw std::invalid_argument(std::string(where) + " names the instruction set '" + name +
                              "', which this build or this machine cannot run; it can run: " + known);
}

int64_t default_bit() {
  const char* wanted = std::getenv("REGARD_ISA");
  if (wanted != nullptr && *wanted != '\0') return find(wanted, "REGARD_ISA");
  return bits_of(runnable_bits()).front();
}

struct Choice {
  std::mutex mutex;
  std::atomic<int64_t> bit{0};  // 0: not chosen yet
  hwy::ChosenTarget target;

  void set(int64_t chosen) {
    const std::lock_guard lock(mutex);
    target.Update(chosen);
    bit.store(chosen, std::memory_order_release);
  }
  int64_t get() {
    int64_t chosen = bit.load(std::memory_order_acquire);
    if (chosen == 0) {
      chosen = default_bit();
      set(chosen);
    }
    return chosen;
  }
};

Choice& choice() {
  static Choice instance;
  return instance;
}

}  // namespace

const hwy::ChosenTarget& chosen_target() {
  choice().get();
  return choice().target;
}

std::vector<std::string> compiled_targets() {
  return names_of(HWY_TARGETS);
}

std::vector<std::string> runnable_targets() {
  return names_of(runnable_bits());
}

std::string active_target() {
  return hwy::TargetName(choice().get());
}

void select_target(const std::string& name) {
  choice().set(name.empty() ? default_bit() : find(name, "select_target"));
}

}  // namespace regard::kernel
