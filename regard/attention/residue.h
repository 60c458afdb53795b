#pragma once

#include <cstdint>

#include "regard/attention/backward.h"
#include "regard/attention/bound_mask.h"
#include "regard/attention/spec.h"

// A stride keeps residue classes apart: rows and keys whose positions agree modulo the period form a problem
// of their own, in which the keys that a row sees lie side by side. Every period-th position of a view is a
// view, so the classes run one after the other through the same kernels, without a masked pair inside tiles,
// and each row and key belongs to one of them: nothing is merged. For the room's own use.
namespace regard::attention {

// The period of a mask whose only term is a stride, within one band if any (causal, window, prefix, first
// rows); 0 where classes cannot run apart: other parts and alternatives, ALiBi and dropout, which count
// positions, rows that must have the bits of a cache's, and periods so long that a class would have fewer
// than 8 keys. Does not depend on the rows.
int64_t residue_period(const Spec& spec, const Operands& operands);

// The same for the backward; 0 also where the gradient of a bias or of sinks is wanted, to which all classes
// add.
int64_t residue_period(const Spec& spec, const Operands& operands, const Gradients& gradients);

// Class `number` (that of key `number`) of a call with residue_period() > 0.
struct ResidueClass {
  ResidueClass(const Spec& spec, const Operands& operands, int64_t period, int64_t number);

  int64_t rows() const { return row.count; }
  Arriving arriving(const Arriving& all) const;
  Gradients gradients(const Gradients& all) const;

  // Positions begin, begin + period, ...
  struct Positions {
    int64_t begin;
    int64_t period;
    int64_t count;
  };
  Positions row;
  Positions key;
  Operands operands;
  BoundMask mask;  // a band
};

// A class as large as the largest, for planning; its data is not to be read.
Operands residue_form(const Operands& form, int64_t period);
Arriving residue_form(const Arriving& form, int64_t period);
Gradients residue_form(const Gradients& form, int64_t period);

}  // namespace regard::attention
