#include "run/engine/compile/buffer_addresses.h"

#include "base/check.h"

namespace lumen::run {

using graph::Graph;
using graph::ValueId;

BufferAddresses::BufferAddresses(const graph::Pipeline& p, const std::shared_ptr<Device>& device)
    : memory_(p.memory), numbers_(p.memory.slots.size(), -1) {
  const Graph& g = p.plan.graph;
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v) {
    const graph::Slot& slot = memory_.slots[v];
    if (slot.where != graph::Slot::Where::external || slot.owner != v) continue;
    if (g[v].op == graph::Op::input_) {
      numbers_[v] = inputs.size();
      inputs.push_back({g[v].attributes.name, g[v].type, false, true});
    } else {
      is_constant_.resize(numbers_.size());
      is_constant_[v] = true;
      numbers_[v] = constants.size();
      constants.push_back(std::make_shared<DeviceTensor>(*device, g[v].type));
      const std::vector<uint8_t> bytes = graph::constant_bytes(g[v]);
      constants.back()->upload(bytes.data(), bytes.size());
    }
  }
  is_constant_.resize(numbers_.size());
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v)
    if (g[v].op == graph::Op::update_) inputs[of(v).at].written = true;
}

BufferAddress BufferAddresses::of(ValueId v) const {
  const graph::Slot& slot = memory_.slots[v];
  LUMEN_CHECK(slot.where != graph::Slot::Where::none, "value %{} is not in memory", v);
  if (slot.where == graph::Slot::Where::arena) return {BufferAddress::In::arena, slot.offset};
  const size_t owner = slot.owner;
  return {is_constant_[owner] ? BufferAddress::In::constant : BufferAddress::In::input, numbers_[owner]};
}

}  // namespace lumen::run
