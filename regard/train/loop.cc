#include "regard/train/loop.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <chrono>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "regard/io/atomic_file.h"
#include "regard/train/checkpoint.h"
#include "regard/train/log.h"
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
    while (step_ < recipe_.steps) {
      log.step(make_step());
      const bool last = step_ == recipe_.steps;
      const bool stopped = !last && listener_.stop && listener_.stop();
      if (last || step_ % recipe_.validate_every == 0) {
        validate(log);
        watch_heads(log);
      }
      const bool tired = recipe_.patience > 0 && since_best_ >= recipe_.patience;
      if (last || stopped || tired || step_ % recipe_.save_every == 0) save(log);
      if (stopped || tired) {
        outcome_.ending = stopped ? Ending::stopped : Ending::out_of_patience;
        break;
      }
    }
    outcome_.step = step_;
    return outcome_;
  }

 private:
  StepReport make_step() {
    const auto begin = std::chrono::steady_clock::now();
    optimizer_.zero_gradients();
    StepReport report{.step = step_ + 1, .steps = recipe_.steps};
    for (int64_t i = 0; i < recipe_.accumulate; ++i) {
      const int64_t pass = step_ * recipe_.accumulate + i;
      const at::Tensor loss = task_.loss(pass);
      const auto value = loss.item<double>();
      if (!std::isfinite(value)) not_a_number(pass);
      report.loss += value / static_cast<double>(recipe_.accumulate);
      (recipe_.accumulate == 1 ? loss : loss / static_cast<double>(recipe_.accumulate)).backward();
      report.tokens += task_.tokens(pass);
    }
    report.gradient_norm = optimizer_.clip(recipe_.clip);
    if (!std::isfinite(report.gradient_norm)) not_a_number(step_ * recipe_.accumulate);
    report.rate = recipe_.schedule.at(step_);
    optimizer_.step(report.rate);
    ++step_;
    report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (listener_.step) listener_.step(report);
    return report;
  }

  [[noreturn]] void not_a_number(int64_t pass) {
    const auto kept = newest_checkpoint(folder_);
    throw std::runtime_error("step " + std::to_string(step_ + 1) + ", pass " + std::to_string(pass) +
                             ": not a number, first in " + task_.find_not_a_number(pass) +
                             (kept ? "; " + kept->string() + " is kept" : "; no checkpoint was made yet") +
                             "; a lower train.rate or a longer train.warmup is the usual remedy");
  }

  void validate(StepLog& log) {
    const std::optional<Validation> found = task_.validate(step_);
    if (!found) return;
    const std::optional<double> value = value_of(*found, recipe_.best);
    const bool best = value && (!outcome_.best || better(recipe_.best, *value, *outcome_.best));
    if (value) since_best_ = best ? 0 : since_best_ + 1;
    if (best) {
      outcome_.best = value;
      outcome_.best_step = step_;
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
    log.sync();
    Checkpoint checkpoint{
        .step = step_, .model = task_.parameters(), .optimizer = optimizer_.state(), .state = {}};
    checkpoint.state["recipe"] = canonical_;
    checkpoint.state["since_best"] = std::to_string(since_best_);
    if (outcome_.best) {
      checkpoint.state["best"] = exact(*outcome_.best);
      checkpoint.state["best_step"] = std::to_string(outcome_.best_step);
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
  std::string alarm_;       // the last one
  Outcome outcome_;
};

}  // namespace

Outcome train(Task& task, const Recipe& recipe, const std::filesystem::path& folder,
              const Listener& listener) {
  return Training(task, recipe, folder, listener).run();
}

}  // namespace regard::train
