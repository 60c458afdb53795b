#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "regard/train/task.h"

namespace regard::train {

// "the parameter NAME" of the first that holds a number which is not finite; "" where all are.
std::string parameter_not_finite(const std::vector<Parameters::Named>& parameters);

// Makes pass `pass` of a task again, with the same dropout, and says where the first number that is not
// finite appears: a parameter; what the layer of some parameter reads or makes, as in "what
// model.decoder.layers.1.fc1 makes"; the loss itself; or, where that is finite, the gradient of a parameter,
// the one nearest the loss. "" where all is finite. Knows no model: operators of libtorch that take a
// parameter are its landmarks.
std::string first_not_finite(Task& task, int64_t pass);

}  // namespace regard::train
