// plan_memory: states and inputs have storage of their own; everything groups write is in one arena. A value occupies
// its bytes from the group that writes it to the last group that reads it, results of the graph to the end. Two values
// whose live ranges touch never overlap, so a kernel never overwrites a value it still reads.
// Proved by tests/graph/fuse_test.cpp.
#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "graph/fuse/fuse.h"
#include "graph/match/access.h"
#include "graph/steps/history.h"

namespace lumen::graph {

namespace {

constexpr int64_t kAlignment = 64;

int64_t aligned_bytes(const Type& t) {
  int64_t bytes = 0;
  if (__builtin_add_overflow(byte_size(t), kAlignment - 1, &bytes)) throw user_error("{} is too large", print(t));
  return bytes / kAlignment * kAlignment;
}

// Outputs of a scan that are a carry's values of all steps share the memory of that carry's history.
void join_histories(const Graph& g, const Group& group, int number, std::vector<Life>* lives, std::vector<int>* life_of,
                    std::vector<int64_t>* within) {
  const auto number_of = [&](ValueId v) { return g[v].op == Op::result_ ? g[v].attributes.index : 0; };
  const auto has = [](const std::vector<int>& of, int k) { return std::find(of.begin(), of.end(), k) != of.end(); };
  for (const History& h : histories_of(g, group.root, kAlignment)) {
    const bool is_read = std::any_of(group.results.begin(), group.results.end(), [&](ValueId v) {
      return has(h.before, number_of(v)) || has(h.after, number_of(v));
    });
    if (!is_read) continue;
    int64_t bytes = 0;
    if (__builtin_mul_overflow(h.bytes, h.steps + 1, &bytes))
      throw user_error("the carries of {} steps are too large", h.steps);
    const int life = std::ssize(*lives);
    lives->push_back({bytes, number, number});
    const auto place = [&](ValueId v, int64_t at) {
      (*life_of)[v] = life;
      (*within)[v] = at;
    };
    for (const ValueId v : group.results) {
      const int k = number_of(v);
      if (has(h.before, k)) place(v, h.read_at());
      if (has(h.after, k)) place(v, h.written_at());
      if (k == h.carry) place(v, h.last_at());
    }
  }
}

}  // namespace

int64_t place_lives(std::vector<Life>& lives) {
  std::vector<Life*> large_first;
  for (Life& life : lives) large_first.push_back(&life);
  std::stable_sort(large_first.begin(), large_first.end(),
                   [](const Life* a, const Life* b) { return a->bytes > b->bytes; });
  std::vector<const Life*> placed;  // by offset
  int64_t end = 0;
  for (Life* life : large_first) {
    int64_t at = 0;
    for (const Life* other : placed) {
      if (other->last < life->first || life->last < other->first) continue;
      if (other->offset - at >= life->bytes) break;
      at = std::max(at, other->offset + other->bytes);
    }
    life->offset = at;
    int64_t behind = 0;
    if (__builtin_add_overflow(at, life->bytes, &behind))
      throw Error(Exit::hardware, "the values of the graph need more memory than there are addresses",
                  "choose a smaller batch or context");
    end = std::max(end, behind);
    const auto next = std::upper_bound(placed.begin(), placed.end(), at,
                                       [](int64_t offset, const Life* other) { return offset < other->offset; });
    placed.insert(next, life);
  }
  return end;
}

MemoryPlan plan_memory(const Plan& plan) {
  const Graph& g = plan.graph;
  MemoryPlan memory;
  memory.slots.resize(g.nodes.size());
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v) {
    const Node& node = g[v];
    Slot& slot = memory.slots[v];
    const bool own = node.op == Op::input_ || (node.op == Op::constant_ && !is_splat(node));
    if (!own && node.op != Op::update_) continue;
    slot = {Slot::Where::external, 0, byte_size(node.type), own ? v : memory.slots[node.operands[0]].owner};
  }

  std::vector<Life> lives;
  std::vector<int> life_of(g.nodes.size(), -1);
  std::vector<int64_t> within(g.nodes.size(), 0);  // bytes from the beginning of the live range's memory
  for (int k = 0; k < std::ssize(plan.groups); ++k) {
    const ValueId root = plan.groups[k].root;
    const bool is_exchange = root >= 0 && g[root].op == Op::exchange_;  // still runs while later groups run
    if (root >= 0 && g[root].op == Op::scan_) join_histories(g, plan.groups[k], k, &lives, &life_of, &within);
    for (ValueId v : plan.groups[k].results) {
      if (life_of[v] >= 0 && (g[v].op == Op::result_ || g[v].op == Op::scan_)) continue;  // part of a history
      if (memory.slots[v].where == Slot::Where::external) continue;
      LUMEN_CHECK(life_of[v] < 0, "%{} is written by two groups", v);
      life_of[v] = lives.size();
      lives.push_back({aligned_bytes(g[v].type), int(first_beside(plan, k)), int(last_beside(plan, k))});
    }
    for (ValueId v : plan.groups[k].inputs) {
      if (memory.slots[v].where == Slot::Where::external) continue;
      LUMEN_CHECK(life_of[v] >= 0, "group {} reads %{} before it is written", k, v);
      int& last = lives[life_of[v]].last;
      last = std::max(last, is_exchange ? end_of_exchange(plan, k) : int(last_beside(plan, k)));
    }
  }
  for (ValueId r : g.results) {
    if (life_of[r] >= 0) lives[life_of[r]].last = plan.groups.size();
  }
  memory.arena_bytes = place_lives(lives);
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v)
    if (life_of[v] >= 0)
      memory.slots[v] = {Slot::Where::arena, lives[life_of[v]].offset + within[v], byte_size(g[v].type), -1};
  return memory;
}

std::vector<uint8_t> constant_bytes(const Node& node) {
  LUMEN_CHECK(!node.type.element.format, "a constant in a format");
  const Scalar s = node.type.element.scalar;
  const size_t width = scalar_bytes(s);
  std::vector<uint8_t> out(byte_size(node.type));
  const std::vector<double>& data = node.attributes.data;
  for (size_t i = 0; i * width < out.size(); ++i) {
    const double x = data[data.size() == 1 ? 0 : i];
    uint64_t bits = 0;
    switch (s) {
      case Scalar::f64:
        bits = std::bit_cast<uint64_t>(x);
        break;
      case Scalar::f32:
        bits = std::bit_cast<uint32_t>(static_cast<float>(x));
        break;
      case Scalar::f16:
        bits = f32_to_f16(static_cast<float>(x));
        break;
      case Scalar::bf16:
        bits = f32_to_bf16(static_cast<float>(x));
        break;
      default:
        bits = static_cast<int64_t>(x);
        break;
    }
    std::memcpy(out.data() + i * width, &bits, width);
  }
  return out;
}

}  // namespace lumen::graph
