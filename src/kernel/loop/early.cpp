// See verify.h.
#include <fmt/format.h>

#include "kernel/loop/text.h"
#include "kernel/loop/verify.h"

namespace lumen::loop {
namespace {

// Walks in the order of the text, which is that of execution for everything before a wait outside serial loops.
class EarlyPart {
 public:
  explicit EarlyPart(const Kernel& k) : k_(k) { region(k.body, 0, true); }

  bool waits() const { return wait_ != nullptr; }
  std::string wrong() const {
    if (!wrong_.empty()) return wrong_;
    if (!wait_) return {};
    return touching_ ? fmt::format("memory is touched before the kernels before have ended: {}", head(*touching_)) : "";
  }

 private:
  static std::string head(const Instr& instr) {
    const std::string text = print(instr);
    return text.substr(0, text.find('\n'));
  }

  bool is_param(BufferId b) const { return b >= 0 && b < std::ssize(k_.params); }

  bool touches(const Instr& instr) const {
    switch (instr.op) {
      case Op::load_:
      case Op::gather_:
      case Op::store_:
      case Op::scatter_:
        return is_param(instr.buffer);
      case Op::copy_:
      case Op::copy_together_:
        return is_param(instr.from) && !k_.params[instr.from].constant;
      case Op::guard_:  // writes the status
        return true;
      default:
        return false;
    }
  }

  // `by_all`: every lane of the block executes this, once.
  void region(const Region& r, int depth, bool by_all) {
    for (const Instr& instr : r.code) {
      if (instr.flow == Flow::kernels) {
        const bool right = by_all && depth == 2;
        if ((wait_ || !right) && wrong_.empty())
          wrong_ = fmt::format(
              "{}: {}", wait_ ? "kernels are waited for twice" : "all lanes of a block wait for kernels", head(instr));
        wait_ = &instr;
      } else if (!wait_ && !touching_ && touches(instr)) {
        touching_ = &instr;
      }
      const bool in_block = instr.op == Op::loop_ && (instr.kind == LoopKind::grid || instr.kind == LoopKind::lane);
      for (const Region& inner : instr.regions) region(inner, depth + 1, by_all && in_block);
    }
  }

  const Kernel& k_;
  const Instr *wait_ = nullptr, *touching_ = nullptr;
  std::string wrong_;
};

}  // namespace

bool begins_early(const Kernel& k) {
  return EarlyPart(k).waits();
}

bool begins_in_whole(const Kernel& k) {
  // A launch without overlap takes 1.5 us longer on an H100; reading 16 MiB takes 5 us.
  constexpr int64_t kMuch = int64_t{16} << 20;
  int64_t bytes = 0;
  for (const BufferParam& p : k.params)
    if (!p.written && !p.constant) bytes += p.bytes;
  return bytes >= kMuch && !begins_early(k);
}

std::string check_early(const Kernel& k) {
  return EarlyPart(k).wrong();
}

}  // namespace lumen::loop
