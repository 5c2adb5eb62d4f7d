// See constants.h.
#include "kernel/loop/constants.h"

#include <unordered_map>

namespace lumen::loop {
namespace {

// Calls visit(v) for every value that an instruction and the regions in it use, in the order of the text.
template <typename Visit>
void each_use(const Instr& instr, const Visit& visit) {
  for (const ValueId v : instr.operands) visit(v);
  for (const Region& r : instr.regions)
    for (const Instr& inner : r.code) each_use(inner, visit);
}

void place(Region& region) {
  std::unordered_map<ValueId, size_t> constants;  // not placed yet
  for (size_t i = 0; i < region.code.size(); ++i)
    if (region.code[i].op == Op::constant_) constants.emplace(region.code[i].result, i);
  std::vector<Instr> code;
  code.reserve(region.code.size());
  for (Instr& instr : region.code) {
    if (instr.op == Op::constant_) continue;
    if (!constants.empty())
      each_use(instr, [&](ValueId v) {
        const auto at = constants.find(v);
        if (at == constants.end()) return;
        code.push_back(std::move(region.code[at->second]));
        constants.erase(at);
      });
    for (Region& inner : instr.regions) place(inner);
    code.push_back(std::move(instr));
  }
  region.code = std::move(code);
}

class Numbering {
 public:
  explicit Numbering(Kernel& k) : types_(std::move(k.value_types)), numbers_(types_.size(), -1) {
    region(k.body);
    k.value_count = found_.size();
    k.value_types = std::move(found_);
  }

 private:
  void name(ValueId& v) {
    if (v < 0) return;
    numbers_[v] = found_.size();
    found_.push_back(types_[v]);
    v = numbers_[v];
  }

  void region(Region& r) {
    for (Instr& instr : r.code) {
      for (ValueId& v : instr.operands) v = numbers_[v];
      for (Region& inner : instr.regions) {
        name(inner.counter);
        region(inner);
      }
      name(instr.result);
    }
  }

  std::vector<VType> types_, found_;
  std::vector<ValueId> numbers_;  // new numbers, by the old ones
};

}  // namespace

void place_constants(Kernel& kernel) {
  place(kernel.body);
  Numbering{kernel};
}

}  // namespace lumen::loop
