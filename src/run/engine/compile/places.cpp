#include "run/engine/compile/places.h"

#include "base/check.h"

namespace lumen::run {

using graph::Graph;
using graph::ValueId;

Places::Places(const graph::Pipeline& p, const std::shared_ptr<Device>& device)
    : memory_(p.memory), numbers_(p.memory.slots.size(), -1) {
  const Graph& g = p.plan.graph;
  for (ValueId v = 0; v < static_cast<ValueId>(g.nodes.size()); ++v) {
    const graph::Slot& slot = memory_.slots[static_cast<size_t>(v)];
    if (slot.where != graph::Slot::Where::external || slot.owner != v) continue;
    if (g[v].op == graph::Op::input_) {
      numbers_[static_cast<size_t>(v)] = static_cast<int64_t>(inputs.size());
      inputs.push_back({g[v].attributes.name, g[v].type, false, true});
    } else {
      is_constant_.resize(numbers_.size());
      is_constant_[static_cast<size_t>(v)] = true;
      numbers_[static_cast<size_t>(v)] = static_cast<int64_t>(constants.size());
      constants.push_back(std::make_shared<DeviceTensor>(*device, g[v].type));
      const std::vector<uint8_t> bytes = graph::constant_bytes(g[v]);
      constants.back()->upload(bytes.data(), static_cast<int64_t>(bytes.size()));
    }
  }
  is_constant_.resize(numbers_.size());
  for (ValueId v = 0; v < static_cast<ValueId>(g.nodes.size()); ++v)
    if (g[v].op == graph::Op::update_) inputs[static_cast<size_t>(of(v).at)].written = true;
}

Place Places::of(ValueId v) const {
  const graph::Slot& slot = memory_.slots[static_cast<size_t>(v)];
  LUMEN_CHECK(slot.where != graph::Slot::Where::none, "value %{} is not in memory", v);
  if (slot.where == graph::Slot::Where::arena) return {Place::In::arena, slot.offset};
  const auto owner = static_cast<size_t>(slot.owner);
  return {is_constant_[owner] ? Place::In::constant : Place::In::input, numbers_[owner]};
}

}  // namespace lumen::run
