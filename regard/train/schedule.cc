#include "regard/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "regard/train/names.h"

namespace regard::train {
namespace {

constexpr Name<Schedule::Kind> kKinds[] = {{"constant", Schedule::Kind::constant},
                                           {"linear", Schedule::Kind::linear},
                                           {"cosine", Schedule::Kind::cosine},
                                           {"inverse_root", Schedule::Kind::inverse_root},
                                           {"noam", Schedule::Kind::noam}};

}  // namespace

Schedule::Kind schedule_named(const std::string& name) {
  return kind_named("schedule", name, kKinds);
}

double Schedule::at(int64_t step) const {
  const auto now = static_cast<double>(std::min(step, steps - 1) + 1);
  const auto warm = static_cast<double>(std::max<int64_t>(warmup, 1));
  if (kind == Kind::noam) {
    return rate / std::sqrt(static_cast<double>(width)) *
           std::min(1 / std::sqrt(now), now * std::pow(warm, -1.5));
  }
  if (now < warm) return rate * now / warm;
  const double left = static_cast<double>(steps) - warm;
  const double done = left > 0 ? std::clamp((now - warm) / left, 0.0, 1.0) : 1.0;
  switch (kind) {
    case Kind::linear:
      return rate * (1 - (1 - final_share) * done);
    case Kind::cosine:
      return rate * (final_share + (1 - final_share) * 0.5 * (1 + std::cos(std::numbers::pi * done)));
    case Kind::inverse_root:
      return rate * std::sqrt(warm / now);
    default:
      return rate;
  }
}

}  // namespace regard::train
