#include "model/infer/recurrent/recurrent.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace lumen::model::infer {
namespace {

bool is_axis_of_positions(const std::string& symbol) {
  return symbol == "S" || symbol == "C" || symbol == "W";
}

bool is_recurrent(const graph::Type& state) {
  return std::ranges::none_of(state.shape,
                              [](const graph::Dim& d) { return std::ranges::any_of(d.symbols, is_axis_of_positions); });
}

// Visits the memory of one slot, by state and layer: its slots are contiguous within a layer.
void each_part(const RecurrentStates& states, int64_t slot,
               const std::function<void(char* begin, int64_t bytes)>& see) {
  for (const auto& [name, state] : states) {
    const graph::Shape& shape = state->type().shape;
    const int64_t layers = shape[0].number(), slots = shape[1].number();
    LUMEN_CHECK(!state->type().element.format && slot >= 0 && slot < slots, "slot {} of {}", slot, slots);
    const int64_t each = state->bytes() / (layers * slots);
    for (int64_t layer = 0; layer < layers; ++layer)
      see(static_cast<char*>(state->data()) + (layer * slots + slot) * each, each);
  }
}

}  // namespace

std::vector<std::string> recurrent_states(const graph::Graph& step) {
  std::vector<std::string> names;
  for (const graph::ValueId v : step.inputs()) {
    const graph::Node& n = step[v];
    if (n.attributes.role == graph::Role::state && is_recurrent(n.type)) names.push_back(n.attributes.name);
  }
  return names;
}

void require_counts(const std::string& family, const graph::Graph& step, const std::vector<std::string>& recurrent,
                    bool many) {
  const char* const wanted = many ? kCounts : kCount;
  const auto refuse = [&](const std::string& state, const std::string& what) {
    throw Error(
        Exit::user,
        fmt::format("the family '{}' cannot be run: {}, and '{}' is a recurrent state: it has no axis of "
                    "positions",
                    family, what, state),
        fmt::format("padding must not enter such a state: take '{}: i32[{}]', the number of real tokens, in {}, "
                    "and leave the state as it is for others",
                    wanted, many ? "B" : "", many ? "step_many" : "step"));
  };
  std::vector<bool> depends(step.nodes.size());
  const graph::ValueId count = step.find_input(wanted);
  for (size_t v = 0; v < step.nodes.size(); ++v) {
    const auto& operands = step.nodes[v].operands;
    depends[v] =
        std::cmp_equal(v, count) || std::ranges::any_of(operands, [&](graph::ValueId o) { return depends[o]; });
  }
  for (const std::string& state : recurrent) {
    if (count < 0) refuse(state, fmt::format("its step does not take '{}'", wanted));
    const graph::Shape& shape = step[step.find_input(state)].type.shape;
    if (shape.size() < 2) refuse(state, fmt::format("'{}' has no axes of layers and sequences", state));
    if (many && shape[1] != graph::Dim(std::string(kSlotAxis)))
      refuse(state, fmt::format("the second axis of '{}' is not '{}', the rows of sequences", state, kSlotAxis));
    if (many && step.find_input(kSlots) < 0)
      refuse(state, fmt::format("its step does not take '{}: i32[B]', the rows of sequences", kSlots));
    std::vector<bool> is_state(step.nodes.size());
    is_state[step.find_input(state)] = true;
    for (size_t v = 0; v < step.nodes.size(); ++v) {
      const graph::Node& n = step.nodes[v];
      if (n.op != graph::Op::update_ || !is_state[n.operands[0]]) continue;
      is_state[v] = true;
      if (!depends[n.operands[1]]) refuse(state, fmt::format("what it writes does not depend on '{}'", wanted));
    }
  }
}

std::string copy_slot(run::Device& device, const RecurrentStates& states, int64_t slot) {
  std::string out;
  each_part(states, slot, [&](const char* begin, int64_t bytes) {
    out.resize(out.size() + bytes);
    device.copy_out(out.data() + out.size() - bytes, begin, bytes);
  });
  return out;
}

void set_slot(run::Device& device, const RecurrentStates& states, int64_t slot, const std::string& bytes) {
  size_t at = 0;
  each_part(states, slot, [&](char* begin, int64_t part) {
    LUMEN_CHECK(at + part <= bytes.size());
    device.copy_in(begin, bytes.data() + at, part);
    at += part;
  });
  LUMEN_CHECK(at == bytes.size(), "{} bytes of a mark for {}", bytes.size(), at);
}

void clear_slot(run::Device& device, const RecurrentStates& states, int64_t slot) {
  std::string zeros;
  each_part(states, slot, [&](char* begin, int64_t bytes) {
    if (std::cmp_less(zeros.size(), bytes)) zeros.resize(bytes);
    device.copy_in(begin, zeros.data(), bytes);
  });
}

bool StateMarks::has(int64_t length) const {
  return std::ranges::any_of(marks_, [&](const Mark& m) { return m.length == length; });
}

void StateMarks::add(int64_t length, std::shared_ptr<const std::string> bytes) {
  LUMEN_CHECK(length > 0 && (marks_.empty() || marks_.back().length < length), "a mark at {}", length);
  marks_.push_back({length, std::move(bytes)});
  if (marks_.size() <= kMost) return;
  size_t closest = 0;
  const auto gap = [&](size_t i) { return marks_[i + 1].length - (i == 0 ? 0 : marks_[i - 1].length); };
  for (size_t i = 1; i + 2 < marks_.size(); ++i)
    if (gap(i) < gap(closest)) closest = i;
  marks_.erase(marks_.begin() + int64_t(closest));
}

const StateMarks::Mark* StateMarks::before(int64_t length) const {
  const Mark* best = nullptr;
  for (const Mark& m : marks_)
    if (m.length <= length) best = &m;
  return best;
}

void StateMarks::drop_behind(int64_t length) {
  std::erase_if(marks_, [&](const Mark& m) { return m.length > length; });
}

void StateMarks::keep_only(int64_t length) {
  std::erase_if(marks_, [&](const Mark& m) { return m.length != length; });
}

}  // namespace lumen::model::infer
