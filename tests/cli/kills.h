#pragma once

#include <algorithm>
#include <string>

#include "program.h"

namespace regard::cli::testing {

// Begins a training `times` times and each time kills it (SIGKILL), mostly a few steps and some milliseconds
// beyond where it stood, every fifth time while it may still be starting. Returns how many kills met it
// alive.
inline int kill_training(const std::string& recipe, const std::string& out, int times) {
  const Outcome outcome =
      shell("recipe='" + recipe + "' out='" + out + "' times=" + std::to_string(times) + R"(
    RANDOM=1
    steps() { if [ -e "$out/log.csv" ]; then wc -l < "$out/log.csv"; else echo 0; fi; }
    for i in $(seq $times); do
      until=$(($(steps) + RANDOM % 8))
      "$REGARD" train "$recipe" --out "$out" > /dev/null 2>&1 & pid=$!
      if [ $((i % 5)) != 0 ]; then
        while [ $(steps) -le $until ] && kill -0 $pid; do sleep 0.002; done
        sleep 0.0$((10 + RANDOM % 20))
      else
        sleep 0.$((100 + RANDOM % 500))
      fi
      kill -KILL $pid
      wait $pid
      [ $? = 137 ] && echo killed
    done
    true)");
  return static_cast<int>(std::count(outcome.out.begin(), outcome.out.end(), '\n'));
}

}  // namespace regard::cli::testing
