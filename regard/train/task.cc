#include "regard/train/task.h"

#include <cmath>

#include "regard/train/names.h"

namespace regard::train {
namespace {

constexpr Name<Metric> kMetrics[] = {
    {"loss", Metric::loss}, {"bleu", Metric::bleu}, {"chrf", Metric::chrf}, {"accuracy", Metric::accuracy}};

}  // namespace

Metric metric_named(const std::string& name) {
  return kind_named("best", name, kMetrics);
}

const char* metric_name(Metric metric) {
  return kMetrics[static_cast<size_t>(metric)].name;
}

std::optional<double> value_of(const Validation& validation, Metric metric) {
  switch (metric) {
    case Metric::bleu:
      return validation.bleu;
    case Metric::chrf:
      return validation.chrf;
    case Metric::accuracy:
      return validation.accuracy;
    default:
      return validation.loss;
  }
}

bool better(Metric metric, double value, double other) {
  if (std::isnan(value) || std::isnan(other)) return !std::isnan(value);
  return metric == Metric::loss ? value < other : value > other;
}

Heads heads_of(const lens::HeadWatch& watch, const Initialisation& start, int64_t width) {
  const Initialisation xavier{.kind = Initialisation::Kind::xavier_normal};
  return {.states = watch.heads(),
          .deviation = deviation(start, width, width),
          .xavier_deviation = deviation(xavier, width, width)};
}

}  // namespace regard::train
