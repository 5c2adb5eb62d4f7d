#include "run/engine/verify/launch_trial/sampled.h"

#include <algorithm>
#include <random>
#include <set>

#include "graph/ir/eval.h"
#include "graph/match/access.h"
#include "graph/match/uses.h"

namespace lumen::run {

using graph::Node;
using graph::Op;
using graph::Type;
using graph::ValueId;

namespace {

constexpr int64_t kMostWork = int64_t{1} << 24;  // elements: takes seconds

int64_t extent(const Type& t, int axis) {
  return t.shape[axis].number();
}

int rank(const Type& t) {
  return int(t.shape.size());
}

// The index in an operand that is broadcast to the result's shape.
Index stretched(const Type& operand, const Index& i) {
  Index out{rank(operand), {}};
  for (int d = 0; d < out.rank; ++d) out.at[d] = extent(operand, d) == 1 ? 0 : i.at[d + i.rank - out.rank];
  return out;
}

}  // namespace

Index index_of(const Type& type, int64_t flat) {
  Index i{rank(type), {}};
  for (int d = i.rank; d-- > 0; flat /= extent(type, d)) i.at[d] = flat % extent(type, d);
  return i;
}

int64_t flat_of(const Type& type, const Index& i) {
  int64_t flat = 0;
  for (int d = 0; d < i.rank; ++d) flat = flat * extent(type, d) + i.at[d];
  return flat;
}

Sampled::Sampled(const graph::Graph& g, const graph::Group& group, const Operands& operands,
                 const KernelFreedom& freedom)
    : g_(g),
      group_(group),
      operands_(operands),
      freedom_(freedom),
      decodes_(g.nodes.size()),
      is_load_(g.nodes.size()),
      is_inside_(g.nodes.size()) {
  for (const ValueId v : group.inputs) is_load_[v] = true;
  for (const ValueId v : group.nodes) {
    const Node& n = g[v];
    is_inside_[v] = true;
    if (rank(n.type) > kMostAxes) throw CannotTry{"a value has too many axes"};
    const bool decodes = n.op == Op::cast_ && g[n.operands[0]].type.element.format;
    if (decodes || graph::is_view(n.op) || n.op == Op::gather_) {
      is_load_[v] = is_load_[n.operands[0]];
      decodes_[v] = decodes || decodes_[n.operands[0]];
    }
    if (n.op == Op::constant_ || n.op == Op::iota_) is_load_[v] = true;
  }
}

void Sampled::spend(int64_t work) {
  work_ += work;
  if (work_ > kMostWork) throw CannotTry{"one element of its result is a sum of too many numbers"};
}

Bounded Sampled::element(ValueId v, int64_t flat) {
  return at(v, index_of(g_[v].type, flat));
}

int64_t Sampled::whole(ValueId v, const Index& i) {
  const Bounded x = at(v, i);
  if (!x.known() || x.error != 0) throw CannotTry{"an index is not certain"};
  return int64_t(x.value);
}

Bounded Sampled::at(ValueId v, const Index& i) {
  spend(1);
  if (!is_inside_[v]) {
    if (operands_.contains(v)) return {operands_[v].number(flat_of(g_[v].type, i)), 0};
    const Node& n = g_[v];  // a constant that many groups read
    if (n.op == Op::constant_ && n.attributes.data.size() == 1)
      return {round_to_scalar(n.type.element.scalar, n.attributes.data[0]), 0};
    throw CannotTry{"a value is not among what its kernels read"};
  }
  const Op op = g_[v].op;
  if (!graph::is_product(op) && op != Op::reduce_ && op != Op::scatter_add_) return computed(v, i);
  const int64_t key = flat_of(g_[v].type, i) * std::ssize(g_.nodes) + v;
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  const Bounded made = computed(v, i);
  return known_[key] = made;
}

Bounded Sampled::computed(ValueId v, const Index& i) {
  const Node& n = g_[v];
  const auto operand = [&](size_t k) -> const Type& { return g_[n.operands[k]].type; };
  switch (n.op) {
    case Op::constant_:
      return {round_to_scalar(n.type.element.scalar,
                              n.attributes.data[n.attributes.data.size() == 1 ? 0 : flat_of(n.type, i)]),
              0};
    case Op::iota_:
      return {double(i.at[n.attributes.axis]), 0};
    case Op::map_:
      return map(n, i);
    case Op::random_:
      return {graph::uniform_random(uint32_t(whole(n.operands[0], index_of(operand(0), 0))), n.attributes.salt,
                                    uint64_t(flat_of(n.type, i))),
              0};
    case Op::reshape_:
      return at(n.operands[0], index_of(operand(0), flat_of(n.type, i)));
    case Op::permute_: {
      Index from{i.rank, {}};
      for (int d = 0; d < i.rank; ++d) from.at[n.attributes.axes[d]] = i.at[d];
      return at(n.operands[0], from);
    }
    case Op::broadcast_:
      return at(n.operands[0], stretched(operand(0), i));
    case Op::slice_: {
      Index from{i.rank, {}};
      for (int d = 0; d < i.rank; ++d) from.at[d] = n.attributes.starts[d] + i.at[d] * n.attributes.strides[d];
      return at(n.operands[0], from);
    }
    case Op::windows_:
      return windows(n, i);
    case Op::pad_:
      return pad(n, i);
    case Op::concat_:
      return concat(n, i);
    case Op::gather_:
      return gather(n, i);
    case Op::cast_:
      return cast(v, i);
    case Op::update_:
      return update(n, i);
    case Op::contract_:
      return contract(n, i);
    case Op::contract_gather_:
      return contract_gather(n, i);
    case Op::contract_scatter_:
      return contract_scatter(n, i);
    case Op::reduce_:
      return reduce(n, i);
    case Op::scatter_add_:
      return scatter_add(n, i);
    default:
      throw CannotTry{fmt::format("{} has no element of its own", graph::op_info(n.op).name)};
  }
}

Bounded Sampled::map(const Node& n, const Index& i) {
  std::array<Bounded, 16> few;
  if (n.operands.size() > few.size()) throw CannotTry{"a formula of too many numbers"};
  for (size_t k = 0; k < n.operands.size(); ++k) few[k] = at(n.operands[k], stretched(g_[n.operands[k]].type, i));
  return bounded_formula(n.attributes.formula, {few.data(), n.operands.size()});
}

Bounded Sampled::windows(const Node& n, const Index& i) {
  Index from{rank(g_[n.operands[0]].type), {}};
  for (int d = 0; d < from.rank; ++d) {
    from.at[d] = n.attributes.starts[d];
    for (int j = 0; j < i.rank; ++j) from.at[d] += n.attributes.strides[d * i.rank + j] * i.at[j];
  }
  return at(n.operands[0], from);
}

Bounded Sampled::pad(const Node& n, const Index& i) {
  const Type& type = g_[n.operands[0]].type;
  Index from{i.rank, {}};
  for (int d = 0; d < i.rank; ++d) {
    const int64_t off = i.at[d] - n.attributes.starts[d], stride = n.attributes.strides[d];
    if (off < 0 || off % stride != 0 || off / stride >= extent(type, d)) return {0, 0};
    from.at[d] = off / stride;
  }
  return at(n.operands[0], from);
}

Bounded Sampled::concat(const Node& n, const Index& i) {
  Index from = i;
  int64_t& along = from.at[n.attributes.axis];
  for (const ValueId part : n.operands) {
    const int64_t own = extent(g_[part].type, n.attributes.axis);
    if (along < own) return at(part, from);
    along -= own;
  }
  throw CannotTry{"an element lies after all parts"};
}

Bounded Sampled::gather(const Node& n, const Index& i) {
  const Type &table = g_[n.operands[0]].type, &index = g_[n.operands[1]].type;
  Index pick{rank(index), {}}, from{rank(table), {}};
  std::copy_n(i.at.begin(), pick.rank, pick.at.begin());
  std::copy(i.at.begin() + pick.rank, i.at.begin() + i.rank, from.at.begin() + 1);
  from.at[0] = whole(n.operands[1], pick);
  if (from.at[0] < 0 || from.at[0] >= extent(table, 0)) throw CannotTry{"an index is outside of its table"};
  return at(n.operands[0], from);
}

bool Sampled::part_begins(const Node& n, int64_t part, Index* begin) {
  *begin = {rank(n.type), {}};
  for (size_t d = 0; d + 2 < n.operands.size(); ++d) {
    const Type& type = g_[n.operands[d + 2]].type;
    const bool many = !type.shape.empty();
    begin->at[d] = whole(n.operands[d + 2], index_of(type, many ? part : 0));
    if (many && begin->at[d] < 0) return false;
  }
  return true;
}

// The last part that writes the element, or its old value.
Bounded Sampled::update(const Node& n, const Index& i) {
  const ValueId value = n.operands[1];
  const Type& type = g_[value].type;
  if (n.operands.size() == 2 && rank(type) == i.rank) return at(value, i);
  const int lead = rank(type) - i.rank;
  int64_t parts = 1;
  for (int d = 0; d < lead; ++d) parts *= extent(type, d);
  spend(parts);
  for (int64_t part = 0; part < parts; ++part) {
    Index begin;
    if (!part_begins(n, part, &begin)) continue;
    Index from{rank(type), {}};
    int64_t rest = part;
    for (int d = lead; d-- > 0; rest /= extent(type, d)) from.at[d] = rest % extent(type, d);
    bool inside = true;
    for (int d = 0; d < i.rank && inside; ++d) {
      from.at[lead + d] = i.at[d] - begin.at[d];
      inside = from.at[lead + d] >= 0 && from.at[lead + d] < extent(type, lead + d);
    }
    if (inside) return at(value, from);
  }
  return at(n.operands[0], i);
}

std::vector<int64_t> Sampled::places(ValueId v, int64_t most) {
  const Type& type = g_[v].type;
  const int64_t count = graph::elements(type.shape).number();
  std::vector<int64_t> out;
  if (count <= most) {
    for (int64_t i = 0; i < count; ++i) out.push_back(i);
    return out;
  }
  std::mt19937_64 chance(v + 1);
  const auto draw = [&](int64_t n) {
    const uint64_t way = chance() % 8;
    return way == 0 ? 0 : way == 1 ? n - 1 : int64_t(chance() % uint64_t(n));
  };
  std::set<int64_t> seen;
  const auto add = [&](int64_t flat) {
    if (seen.insert(flat).second) out.push_back(flat);
  };
  add(0);
  add(count - 1);
  const Node& n = g_[v];
  const bool has_parts = n.op == Op::update_ && n.operands.size() > 2;
  for (int64_t k = 0; k < most; ++k) {
    Index i{rank(type), {}};
    for (int d = 0; d < i.rank; ++d) i.at[d] = draw(extent(type, d));
    if (has_parts && k % 4 != 0) {  // where a part is written
      const Type& value = g_[n.operands[1]].type;
      const int lead = rank(value) - i.rank;
      int64_t parts = 1;
      for (int d = 0; d < lead; ++d) parts *= extent(value, d);
      Index begin;
      if (part_begins(n, draw(parts), &begin))
        for (int d = 0; d < i.rank; ++d) i.at[d] = begin.at[d] + draw(extent(value, lead + d));
    }
    add(flat_of(type, i));
  }
  return out;
}

}  // namespace lumen::run
