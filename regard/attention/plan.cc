#include "regard/attention/plan.h"

#include <sstream>

#include "regard/attention/lower.h"
#include "regard/attention/residue.h"
#include "regard/kernel/targets.h"

namespace regard::attention {
namespace {

using Kind = kernel::ForwardTiling::Kind;

constexpr int64_t kColumns = 64;  // of a tile that is counted

std::string explain(const kernel::ForwardTiling& tiling, const Operands& form) {
  std::ostringstream text;
  const int64_t rows = form.q.size[2];
  const int64_t group = form.q.size[1] / form.k.size[1];
  if (tiling.kind == Kind::decode) {
    text << rows << (rows == 1 ? " query row is" : " query rows are")
         << " too few to share packed keys: keys are read once, split over tasks";
    if (group > 1) text << ", for the " << group << " query heads of a key/value head together";
  } else {
    text << rows << (rows == 1 ? " query row shares" : " query rows share")
         << " packed keys in register tiles";
    if (form.k.stride[3] != 1 || form.v.stride[3] != 1) text << "; features that are not adjacent are packed";
  }
  return text.str();
}

void print_size(std::ostream& text, const char* name, const kernel::Extents& size, kernel::DType dtype) {
  text << name << " [" << size[0] << ", " << size[1] << ", " << size[2] << ", " << size[3] << "] "
       << kernel::name(dtype);
}

}  // namespace

Plan::Plan(const Spec& spec, const Operands& operands) : spec_(spec), form_(operands) {
  check_form(spec, operands);
  const BoundMask mask = bind_form(spec_, form_);
  if (!spec_.row_invariant) tiling_ = kernel::choose_forward_tiling(lower(spec_, form_, mask));
  period_ = residue_period(spec_, form_);
  reason_ = explain(tiling_, form_);
  if (period_ > 0) {
    reason_ += "; the stride keeps " + std::to_string(period_) +
               " residue classes apart, which run one after the other as views of every " +
               std::to_string(period_) + "th position";
  }
}

size_t Plan::workspace_bytes(int workers) const {
  if (period_ > 0) {
    const BoundMask none({}, 0, 0);
    return kernel::forward_workspace(lower(spec_, residue_form(form_, period_), none), tiling_, workers);
  }
  const BoundMask mask = bind_form(spec_, form_);
  return kernel::forward_workspace(lower(spec_, form_, mask), tiling_, workers);
}

void Plan::run(const Operands& operands, std::span<std::byte> workspace, kernel::Parallel& parallel) const {
  const kernel::Extents& q = operands.q.size;
  if (q[0] * q[1] * q[2] == 0) return;  // no rows: nothing to fill
  for (int64_t number = 0; number < period_; ++number) {
    const ResidueClass one(spec_, operands, period_, number);
    if (one.rows() == 0) continue;
    kernel::forward(lower(spec_, one.operands, one.mask), tiling_, workspace, parallel);
  }
  if (period_ > 0) return;
  const BoundMask mask = bind_mask(spec_, operands);
  kernel::forward(lower(spec_, operands, mask), tiling_, workspace, parallel);
}

TileCount Plan::live_tiles() const {
  if (period_ == 0) return count_tiles(bind_form(spec_, form_), 0, 0, tiling_.query_rows, kColumns);
  TileCount all;
  for (int64_t number = 0; number < period_; ++number) {
    const ResidueClass one(spec_, form_, period_, number);
    const TileCount mine = count_tiles(one.mask, 0, 0, tiling_.query_rows, kColumns);
    all.live += mine.live;
    all.full += mine.full;
  }
  all.all = count_tiles(bind_form(spec_, form_), 0, 0, tiling_.query_rows, kColumns).all;
  return all;
}

std::string Plan::to_string() const {
  std::ostringstream text;
  text << "attention: ";
  print_size(text, "q", form_.q.size, form_.q.dtype);
  print_size(text, ", k", form_.k.size, form_.k.dtype);
  print_size(text, ", v", form_.v.size, form_.v.dtype);
  text << "\n  spec: " << spec_.to_string();
  if (form_.bias) text << ", bias";
  if (form_.slopes) text << ", ALiBi slopes (" << name(spec_.alibi_align) << ")";
  if (form_.sinks) text << ", sinks";
  text << "\n  kernel: " << (tiling_.kind == Kind::decode ? "decode" : "prefill") << " on "
       << kernel::active_target() << ", ";
  if (tiling_.kind == Kind::decode) {
    text << tiling_.split_keys << " keys a task, parts merged in the order of the keys";
  } else {
    text << tiling_.query_rows << " query rows a tile, blocks of " << tiling_.key_block
         << " keys in their order";
  }
  text << "\n  scratch: " << workspace_bytes(1) << " bytes with one worker, " << workspace_bytes(2)
       << " with two";
  const TileCount tiles = live_tiles();
  const bool depends = spec_.mask.depends_on_data();
  text << "\n  live tiles: " << (depends ? "at most " : "") << tiles.live << " of " << tiles.all << " ("
       << tiles.full << " without a masked pair) a head, of " << tiling_.query_rows << " rows by " << kColumns
       << " keys";
  text << "\n  reason: " << reason_ << '\n';
  return text.str();
}

}  // namespace regard::attention
