#include "regard/kernel/targets.h"

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <stdexcept>

#include "regard/kernel/dispatch.h"
#include "regard/kernel/self_check.h"

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

// Targets that every run of the tests exercises. Any other proves itself first.
bool is_trusted(int64_t bit) {
#if HWY_ARCH_X86
  if (bit == HWY_AVX2) return true;
#endif
  return bit == HWY_STATIC_TARGET;
}

class Choice {
 public:
  void set(int64_t chosen) {
    const std::lock_guard lock(mutex_);
    target_.Update(chosen);
    bit_.store(chosen, std::memory_order_release);
  }
  void set_default() {
    const std::lock_guard lock(mutex_);
    bit_.store(find_default(), std::memory_order_release);
  }
  int64_t get() {
    if (const int64_t chosen = bit_.load(std::memory_order_acquire); chosen != 0) return chosen;
    if (is_checking) return 0;  // the check itself asks for the target under test
    const std::lock_guard lock(mutex_);
    if (bit_.load(std::memory_order_relaxed) == 0) bit_.store(find_default(), std::memory_order_release);
    return bit_.load(std::memory_order_relaxed);
  }
  const hwy::ChosenTarget& target() {
    get();
    return target_;
  }

 private:
  // What REGARD_ISA names, else the best target that computes right numbers.
  int64_t find_default() {
    const char* wanted = std::getenv("REGARD_ISA");
    if (wanted != nullptr && *wanted != '\0') {
      const int64_t bit = find(wanted, "REGARD_ISA");
      target_.Update(bit);
      return bit;
    }
    for (const int64_t bit : bits_of(runnable_bits())) {
      target_.Update(bit);
      if (is_trusted(bit)) return bit;
      bit_.store(0, std::memory_order_relaxed);
      is_checking = true;
      const bool right = self_check();
      is_checking = false;
      if (right) return bit;
    }
    return HWY_STATIC_TARGET;
  }

  static thread_local bool is_checking;
  std::mutex mutex_;
  std::atomic<int64_t> bit_{0};  // 0: not chosen yet
  hwy::ChosenTarget target_;
};
thread_local bool Choice::is_checking = false;

Choice& choice() {
  static Choice instance;
  return instance;
}

}  // namespace

const hwy::ChosenTarget& chosen_target() {
  return choice().target();
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
  if (name.empty())
    choice().set_default();
  else
    choice().set(find(name, "select_target"));
}

}  // namespace regard::kernel
