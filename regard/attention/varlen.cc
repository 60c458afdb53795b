#include "regard/attention/varlen.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "regard/attention/lower.h"
#include "regard/attention/plan.h"
#include "regard/attention/scratch.h"

namespace regard::attention {
namespace {

[[noreturn]] void fail(const std::string& what, const std::string& allowed) {
  throw std::invalid_argument("varlen_attention: " + what + "; allowed: " + allowed);
}

struct Range {
  int64_t begin;
  int64_t end;
  int64_t count() const { return end - begin; }
};

Range rows_of(const Documents& documents, int64_t document) {
  return {documents.query_starts[document], documents.query_starts[document + 1]};
}

Range keys_of(const Documents& documents, int64_t document) {
  return {documents.key_starts[document], documents.key_starts[document + 1]};
}

int64_t count_of(const Documents& documents) {
  return static_cast<int64_t>(documents.query_starts.size()) - 1;
}

template <class T>
View<T> slice(View<T> view, const Range& range) {
  if (!view) return view;
  view.data += range.begin * view.stride[2];
  view.size[2] = range.count();
  return view;
}

template <class Void>
kernel::BasicAnyView<Void> slice(kernel::BasicAnyView<Void> view, const Range& range) {
  using Byte = std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
  if (!view) return view;
  view.data = static_cast<Byte*>(view.data) + range.begin * view.stride[2] * kernel::bytes(view.dtype);
  view.size[2] = range.count();
  return view;
}

Operands document_of(const Operands& all, const Documents& documents, int64_t document) {
  const Range rows = rows_of(documents, document);
  const Range keys = keys_of(documents, document);
  Operands one = all;
  one.q = slice(all.q, rows);
  one.k = slice(all.k, keys);
  one.v = slice(all.v, keys);
  one.out = slice(all.out, rows);
  one.lse = slice(all.lse, rows);
  one.dropout_first_batch += document;
  return one;
}

void check_starts(const char* name, std::span<const int64_t> starts, int64_t total, const char* what) {
  const auto at = [&](size_t i) {
    return std::string(name) + "[" + std::to_string(i) + "] is " + std::to_string(starts[i]);
  };
  if (starts.empty()) fail(std::string(name) + " is empty", "one number more than there are documents");
  if (starts[0] != 0) fail(at(0), "0");
  for (size_t i = 1; i < starts.size(); ++i) {
    if (starts[i] < starts[i - 1]) fail(at(i), "at least the one before, " + std::to_string(starts[i - 1]));
  }
  if (starts.back() != total) fail(at(starts.size() - 1), std::string(what) + ", " + std::to_string(total));
}

void check_documents(const Spec& spec, const Operands& operands, const Documents& documents) {
  if (spec.mask.depends_on_data()) {
    fail("the mask is " + spec.mask.to_string(), "parts that need no data, as they count inside a document");
  }
  if (operands.bias) fail("bias is given", "none: its rows and keys would count across documents");
  Spec whole = spec;
  whole.mask = {};
  check(whole, operands);
  if (operands.q.size[0] != 1) {
    fail("q has " + std::to_string(operands.q.size[0]) + " batch entries", "1, which holds all documents");
  }
  check_starts("query_starts", documents.query_starts, operands.q.size[2], "the number of rows of q");
  check_starts("key_starts", documents.key_starts, operands.k.size[2], "the number of rows of k");
  if (documents.query_starts.size() != documents.key_starts.size()) {
    fail("query_starts has " + std::to_string(documents.query_starts.size()) + " numbers and key_starts " +
             std::to_string(documents.key_starts.size()),
         "equally many");
  }
  if (!spec.mask.uses<part::Neighbourhood>()) return;
  for (int64_t d = 0; d < count_of(documents); ++d) {
    check_form(spec, document_of(operands, documents, d));  // the grid must fit each document
  }
}

// Memory of one worker, grown to the largest document that it meets.
class GrowingScratch {
 public:
  std::span<std::byte> bytes(size_t size) {
    if (scratch_.bytes().size() < size) scratch_ = Scratch(size);
    return scratch_.bytes();
  }

 private:
  Scratch scratch_{0};
};

// run(document, scratch, parallel) for each document. One that is longer than a worker's share of all work
// would keep the others waiting: it runs alone, with all workers.
template <class Run>
void for_each_document(const Documents& documents, kernel::Parallel& parallel, Run&& run) {
  const auto cost = [&](int64_t d) {
    return static_cast<double>(rows_of(documents, d).count()) *
           static_cast<double>(keys_of(documents, d).count());
  };
  const int64_t count = count_of(documents);
  double total = 0;
  for (int64_t d = 0; d < count; ++d) total += cost(d);
  const int workers = parallel.workers();
  std::vector<GrowingScratch> scratch(static_cast<size_t>(workers));
  std::vector<int64_t> side_by_side;
  for (int64_t d = 0; d < count; ++d) {
    if (workers > 1 && cost(d) * workers > total) {
      run(d, scratch[0], parallel);
    } else {
      side_by_side.push_back(d);
    }
  }
  parallel.run(static_cast<int64_t>(side_by_side.size()), [&](int64_t task, int worker) {
    kernel::Serial serial;
    run(side_by_side[task], scratch[worker], serial);
  });
}

}  // namespace

void varlen_attention(const Spec& spec, const Operands& operands, const Documents& documents,
                      kernel::Parallel& parallel) {
  check_documents(spec, operands, documents);
  for_each_document(documents, parallel, [&](int64_t d, GrowingScratch& scratch, kernel::Parallel& inner) {
    const Operands one = document_of(operands, documents, d);
    const Plan plan(spec, one);
    plan.run(one, scratch.bytes(plan.workspace_bytes(inner.workers())), inner);
  });
}

void varlen_backward(const Spec& spec, const Operands& operands, const Documents& documents,
                     const Arriving& arriving, const Gradients& gradients, kernel::Parallel& parallel) {
  check_documents(spec, operands, documents);
  Spec whole = spec;
  whole.mask = {};
  check_backward(whole, operands, arriving, gradients);
  const int64_t heads = operands.q.size[1];
  const int64_t sums = count_of(documents) * heads;
  // Of each document, so that their sum does not depend on who is done first.
  std::vector<float> slopes(gradients.slopes ? sums : 0);
  std::vector<float> sinks(gradients.sinks ? sums : 0);
  for_each_document(documents, parallel, [&](int64_t d, GrowingScratch& scratch, kernel::Parallel& inner) {
    const Range rows = rows_of(documents, d);
    const Range keys = keys_of(documents, d);
    const Operands one = document_of(operands, documents, d);
    const Arriving from{slice(arriving.out, rows), slice(arriving.lse, rows)};
    Gradients to{slice(gradients.q, rows), slice(gradients.k, keys), slice(gradients.v, keys), {}, {}, {}};
    const kernel::Extents size{1, heads, 1, 1};
    if (gradients.slopes) to.slopes = {slopes.data() + d * heads, size};
    if (gradients.sinks) to.sinks = {sinks.data() + d * heads, size};
    const BackwardPlan plan(spec, one, from, to);
    plan.run(one, from, to, scratch.bytes(plan.workspace_bytes(inner.workers())), inner);
  });
  const auto add_up = [&](const std::vector<float>& parts, const View<float>& sum) {
    for (int64_t h = 0; sum && h < heads; ++h) {
      double total = 0;
      for (int64_t d = 0; d < count_of(documents); ++d) total += static_cast<double>(parts[d * heads + h]);
      sum(0, h, 0, 0) = static_cast<float>(total);
    }
  };
  add_up(slopes, gradients.slopes);
  add_up(sinks, gradients.sinks);
}

}  // namespace regard::attention
