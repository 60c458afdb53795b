#include "regard/cli/interrupt.h"

#include <csignal>
#include <stdexcept>

namespace regard::cli {
namespace {

volatile std::sig_atomic_t flag = 0;

extern "C" void on_interrupt(int signal) {
  flag = 1;
  std::signal(signal, SIG_DFL);
}

}  // namespace

void catch_interrupts() {
  std::signal(SIGINT, on_interrupt);
  std::signal(SIGTERM, on_interrupt);
}

bool interrupted() {
  return flag != 0;
}

void stop_if_interrupted() {
  if (interrupted()) throw std::runtime_error("interrupted");
}

}  // namespace regard::cli
