#pragma once

namespace regard::autograd {

// For a backward without one of its own: throws std::invalid_argument where its result would have to be
// differentiated again (create_graph = true). operation: as the error calls it, "attention".
void refuse_second_derivative(const char* operation);

}  // namespace regard::autograd
