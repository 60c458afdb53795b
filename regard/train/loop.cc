#include "regard/train/loop.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <chrono>
#include <cmath>
#include <stdexcept>
#include <utility>
#include <vector>

#include "regard/io/atomic_file.h"
#include "regard/train/checkpoint.h"
#include "regard/train/log.h"
#include "regard/train/not_finite.h"
#include "regard/train/optimizer.h"

namespace regard::train {
namespace {

class Training {
 public:
  Training(Task& task, const Recipe& recipe, std::filesystem::path folder, const Listener& listener)
      : task_(task),
        recipe_(recipe.train),
        canonical_(recipe.canonical),
        folder_(std::move(folder)),
        listener_(listener),
        optimizer_(recipe_.optimizer, task.parameters()) {}

  Outcome run() {
    std::filesystem::create_directories(folder_);
    io::remove_orphans(folder_);
    if (const auto path = newest_checkpoint(folder_)) restore(*path);
    StepLog log(folder_, step_);
    // A training that was killed between a validation and its checkpoint makes the validation again.
    bool due = false;  // a checkpoint
    while (step_ < recipe_.steps && outcome_.ending == Ending::finished) {
      StepReport report = find_gradients();
      if (due) save(log);
      follow_gradients(report);
      log.step(report);
      const bool last = step_ == recipe_.steps;
      if (last || step_ % recipe_.validate_every == 0) {
        validate(log);
        watch_heads(log);
      }
      if (!last && listener_.stop && listener_.stop()) {
        outcome_.ending = Ending::stopped;
      } else if (recipe_.patience > 0 && since_best_ >= recipe_.patience) {
        outcome_.ending = Ending::out_of_patience;
      }
      due = last || outcome_.ending != Ending::finished || step_ % recipe_.save_every == 0;
    }
    if (outcome_.ending == Ending::stopped) find_gradients();
    if (due) save(log);
    outcome_.step = step_;
    return outcome_;
  }

 private:
  // Of the next step. Throws where one is not finite: a state that goes on is saved after this only, so that
  // each checkpoint leads further than to where it was made.
  StepReport find_gradients() {
    const auto begin = std::chrono::steady_clock::now();
    optimizer_.zero_gradients();
    StepReport report{.step = step_ + 1, .steps = recipe_.steps};
    const int64_t first = step_ * recipe_.accumulate;
    std::vector<int64_t> tokens;
    for (int64_t i = 0; i < recipe_.accumulate; ++i)
      report.tokens += tokens.emplace_back(task_.tokens(first + i));
    for (int64_t i = 0; i < recipe_.accumulate; ++i) {
      const at::Tensor loss = task_.loss(first + i);
      const auto value = loss.item<double>();
      if (!std::isfinite(value)) refuse(first + i, first + i + 1);
      // Each token counts alike: passes together are as one pass over all their texts.
      const double share =
          static_cast<double>(tokens[static_cast<size_t>(i)]) / static_cast<double>(report.tokens);
      report.loss += value * share;
      (share == 1 ? loss : loss * share).backward();
    }
    report.gradient_norm = optimizer_.clip(recipe_.clip);
    if (!std::isfinite(report.gradient_norm)) refuse(first, first + recipe_.accumulate);
    report.seconds = seconds_since(begin);
    return report;
  }

  void follow_gradients(StepReport& report) {
    const auto begin = std::chrono::steady_clock::now();
    report.rate = recipe_.schedule.at(step_);
    optimizer_.step(report.rate);
    ++step_;
    report.seconds += seconds_since(begin);
    if (listener_.step) listener_.step(report);
  }

  static double seconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  // One of these passes of the next step made a number that is not finite.
  [[noreturn]] void refuse(int64_t pass, int64_t end) {
    std::string found;
    for (; pass < end && found.empty(); ++pass) found = first_not_finite(task_, pass);
    if (found.empty()) found = "the sum of the gradients";
    refuse("step " + std::to_string(step_ + 1) + ", pass " + std::to_string(pass - 1) +
           ": not a number, first in " + found);
  }

  [[noreturn]] void refuse(const std::string& what) const {
    constexpr const char* kRemedy = "a lower train.rate or train.clip or a longer train.warmup";
    const auto kept = newest_checkpoint(folder_);
    throw std::runtime_error(
        what + (kept ? "; " + kept->string() + " is kept, from which the same command goes on with " + kRemedy
                     : "; no checkpoint was made yet; the usual remedy is " + std::string(kRemedy)));
  }

  void validate(StepLog& log) {
    const std::optional<Validation> found = task_.validate(step_);
    if (!found) return;
    const std::optional<double> value = value_of(*found, recipe_.best);
    const bool best = value && std::isfinite(*value) &&
                      (!outcome_.best || better(recipe_.best, *value, *outcome_.best) ||
                       (*value == *outcome_.best && found->loss < best_loss_));
    if (value) since_best_ = best ? 0 : since_best_ + 1;
    if (best) {
      outcome_.best = value;
      outcome_.best_step = step_;
      best_loss_ = found->loss;
      task_.save(folder_);
    }
    log.validation(step_, *found, best);
    if (listener_.validation) listener_.validation(step_, *found, best);
  }

  // At each validation, whether there is a text for it or not.
  void watch_heads(StepLog& log) {
    const Heads heads = task_.heads();
    if (heads.states.empty()) return;
    log.heads(step_, heads.states);
    if (recipe_.alarm_after == 0 || step_ < recipe_.alarm_after || !listener_.alarm) return;
    const Schedule& schedule = recipe_.schedule;
    const std::optional<std::string> alarm =
        lens::head_alarm(heads.states, {.step = step_,
                                        .warmup = schedule.warmup,
                                        .rate = schedule.at(step_ - 1),
                                        .peak_rate = schedule.at(schedule.warmup),
                                        .deviation = heads.deviation,
                                        .xavier_deviation = heads.xavier_deviation,
                                        .post_norm = heads.post_norm});
    if (alarm && *alarm != alarm_) listener_.alarm(step_, *alarm);
    alarm_ = alarm.value_or("");
  }

  void save(StepLog& log) {
    if (const std::string found = parameter_not_finite(task_.parameters()); !found.empty())
      refuse("after step " + std::to_string(step_) + ": not a number, in " + found);
    log.sync();
    Checkpoint checkpoint{
        .step = step_, .model = task_.parameters(), .optimizer = optimizer_.state(), .state = {}};
    checkpoint.state["recipe"] = canonical_;
    checkpoint.state["since_best"] = std::to_string(since_best_);
    if (outcome_.best) {
      checkpoint.state["best"] = exact(*outcome_.best);
      checkpoint.state["best_step"] = std::to_string(outcome_.best_step);
      checkpoint.state["best_loss"] = exact(best_loss_);
    } else {
      task_.save(folder_);  // nothing says which is best: the last
    }
    const std::filesystem::path path = checkpoint_path(folder_, step_);
    write_checkpoint(path, checkpoint);
    remove_old_checkpoints(folder_, recipe_.keep);
    if (listener_.saved) listener_.saved(path);
  }

  void restore(const std::filesystem::path& path) {
    const Checkpoint checkpoint = read_checkpoint(path);
    const auto recipe = checkpoint.state.find("recipe");
    if (recipe == checkpoint.state.end() || recipe->second != canonical_) {
      throw std::invalid_argument(folder_.string() + " holds a training of another recipe (" +
                                  path.filename().string() +
                                  "); choose another folder, or the recipe it began with");
    }
    const at::NoGradGuard no_grad;
    const auto& parameters = task_.parameters();
    bool same = checkpoint.model.size() == parameters.size();
    for (size_t i = 0; same && i < parameters.size(); ++i) {
      same = checkpoint.model[i].name == parameters[i].name &&
             checkpoint.model[i].value.sizes() == parameters[i].value.sizes();
      if (same) parameters[i].value.copy_(checkpoint.model[i].value);
    }
    if (!same) throw std::invalid_argument(path.string() + " is of another model than the recipe's");
    optimizer_.restore(checkpoint.optimizer);
    step_ = checkpoint.step;
    since_best_ = whole_number(checkpoint, "since_best", path);
    if (checkpoint.state.count("best") > 0) {
      outcome_.best = number(checkpoint, "best", path);
      outcome_.best_step = whole_number(checkpoint, "best_step", path);
      best_loss_ = number(checkpoint, "best_loss", path);
    }
  }

  Task& task_;
  const TrainRecipe& recipe_;
  const std::string& canonical_;
  std::filesystem::path folder_;
  const Listener& listener_;
  Optimizer optimizer_;
  int64_t step_ = 0;
  int64_t since_best_ = 0;  // validations
  double best_loss_ = 0;    // what decides between validations that are as good by recipe.train.best
  std::string alarm_;       // the last one
  Outcome outcome_;
};

}  // namespace

Outcome train(Task& task, const Recipe& recipe, const std::filesystem::path& folder,
              const Listener& listener) {
  return Training(task, recipe, folder, listener).run();
}

}  // namespace regard::train
