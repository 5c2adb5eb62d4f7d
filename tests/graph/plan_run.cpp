#include "plan_run.h"

#include <algorithm>

#include "graph/ir/verify.h"

namespace lumen::graph {

namespace {

bool contains(const std::vector<ValueId>& list, ValueId v) {
  return std::find(list.begin(), list.end(), v) != list.end();
}

bool is_source(const Graph& g, const Group& group, ValueId v) {
  if (contains(group.inputs, v)) return true;
  if (is_unpack(g, v)) return contains(group.inputs, g[v].operands[0]);
  if (g[v].op == Op::iota_) {
    int wide = 0;
    for (const Dim& d : g[v].type.shape) wide += d == Dim(1) ? 0 : 1;
    return wide <= 1;
  }
  return is_splat(g[v]);
}

bool is_load_node(const Graph& g, ValueId v) {
  return is_view(g[v].op) || is_unpack(g, v) || is_splat(g[v]) || g[v].op == Op::iota_;
}

std::string check_load(const Graph& g, const Group& group, ValueId v) {
  const auto access = affine_access(g, v);
  if (!access) return fmt::format("%{} is no affine load", v);
  if (!is_source(g, group, access->source)) return fmt::format("%{} reads %{}, which is no source", v, access->source);
  return {};
}

}  // namespace

std::string check_group(const Graph& g, const Group& group) {
  if (!std::is_sorted(group.nodes.begin(), group.nodes.end())) return "nodes out of order";
  if (group.results.empty()) return "no result";
  std::vector<ValueId> computes;
  for (ValueId v : group.nodes) {
    for (ValueId o : g[v].operands) {
      if (!contains(group.nodes, o) && !contains(group.inputs, o)) return fmt::format("%{} needs %{}", v, o);
    }
    if (!is_load_node(g, v)) computes.push_back(v);
  }
  const auto is_encoded = [&](ValueId o) {  // a view of a map whose values are made into codes
    const auto access = affine_access(g, o);
    return group.shape == KernelShape::move && access && contains(computes, access->source) &&
           g[access->source].op == Op::map_;
  };
  const auto is_in_zeros = [&](ValueId o) {  // views of a pad whose zeros a product has around what it reads
    const auto access = affine_access(g, o);
    return group.shape == KernelShape::dot && access && contains(computes, access->source) &&
           g[access->source].op == Op::pad_;
  };
  for (ValueId v : computes) {
    for (ValueId o : g[v].operands) {
      if (contains(computes, o)) {
        if (g[o].op == Op::update_) return fmt::format("%{} reads an update of its own group", v);
        continue;
      }
      if (is_encoded(o) || is_in_zeros(o)) continue;
      if (const std::string wrong = check_load(g, group, o); !wrong.empty()) return wrong;
    }
  }
  for (ValueId r : group.results) {
    if (!contains(computes, r)) return fmt::format("result %{} is not computed", r);
  }
  const auto count = [&](Op op) {
    return std::count_if(computes.begin(), computes.end(), [&](ValueId v) { return g[v].op == op; });
  };
  const auto maps = static_cast<size_t>(count(Op::map_) + count(Op::random_));
  switch (group.shape) {
    case KernelShape::map:
      if (maps + static_cast<size_t>(count(Op::update_)) != computes.size() || group.root != -1)
        return "a map group has other nodes";
      for (ValueId v : computes) {
        if (g[v].type.shape != g[computes[0]].type.shape) return "a map group of several shapes";
        if (g[v].op == Op::update_ && !contains(computes, g[v].operands[1]))
          return "an update of a value from elsewhere";
      }
      return {};
    case KernelShape::reduce: {
      if (maps + static_cast<size_t>(count(Op::reduce_)) != computes.size()) return "a reduce group has other nodes";
      const Shape &full = g[g[group.root].operands[0]].type.shape, &reduced = g[group.root].type.shape;
      for (ValueId v : computes) {
        const bool wide = g[v].type.shape == full, narrow = g[v].type.shape == reduced;
        if (!wide && !narrow) return fmt::format("%{} has neither the full nor the reduced shape", v);
        if (g[v].op == Op::reduce_ && g[v].attributes.axes != g[group.root].attributes.axes)
          return "reduces over different axes";
      }
      return {};
    }
    case KernelShape::dot:
      if (count(Op::contract_) + count(Op::contract_gather_) + count(Op::contract_scatter_) != 1 ||
          maps + size_t(count(Op::pad_)) + 1 != computes.size() || group.results.size() != 1)
        return "a dot group has other nodes";
      if (group.root < 0 || g[group.root].op == Op::map_ || group.results[0] != computes.back())
        return "a dot group without its end";
      if (g[group.root].op == Op::contract_scatter_) {
        const auto& letters = g[group.root].attributes.indices;
        if (letters[1].find(letters[3].back()) == std::string::npos)
          return "the result's last axis is the first factor's";
      }
      return {};
    case KernelShape::attend:
      if (count(Op::contract_) != 2 || count(Op::reduce_) != 2 || maps + 4 != computes.size()) return "no attention";
      for (ValueId r : group.results)
        if (r != group.nodes.back() && g[r].op != Op::reduce_) return "attention has a result inside";
      return {};
    case KernelShape::attend_gradient:
      if (maps + 2 + group.results.size() != computes.size()) return "no gradient of attention";
      for (ValueId r : group.results)
        if (g[r].op != Op::contract_) return "a gradient of attention is a product";
      return {};
    case KernelShape::move:
      if (maps > 0) {
        const auto casts = static_cast<size_t>(count(Op::cast_)), extremes = static_cast<size_t>(count(Op::reduce_));
        if (casts + extremes + maps != computes.size() || casts < 1 || casts > 2 || extremes > 2 ||
            group.results.size() != casts + (extremes > 0 ? 1 : 0))
          return "codes of maps with other nodes";
        if (!contains(group.results, group.root)) return "codes without their root";
        for (const ValueId r : group.results)
          if (g[r].op != Op::cast_ && (g[r].op != Op::reduce_ || elements(g[r].type.shape) != Dim(1)))
            return "a result that is neither codes nor an extreme of all numbers";
        return {};
      }
      if (computes.size() != 1 || computes[0] != group.root || maps != 0)
        return "a move has one compute node, its root";
      return {};
  }
  return {};
}

namespace {

// Memory as the plan lays it out. Every byte remembers which value was written there last.
class Storage {
 public:
  Storage(const Plan& plan, const MemoryPlan& memory) : plan_(plan), memory_(memory), owner_(memory.arena_bytes, -1) {}

  std::string write(ValueId v, Tensor t) {
    const Slot& slot = memory_.slots[v];
    if (slot.where == Slot::Where::none) return fmt::format("%{} has no slot", v);
    if (slot.bytes != byte_size(plan_.graph[v].type)) return fmt::format("%{} has a slot of the wrong size", v);
    if (slot.where == Slot::Where::external) {
      external_[slot.owner] = v;
    } else {
      if (slot.offset % 64 != 0 || slot.offset + slot.bytes > memory_.arena_bytes)
        return fmt::format("%{} leaves the arena", v);
      std::fill_n(owner_.begin() + slot.offset, slot.bytes, v);
    }
    values_[v] = std::move(t);
    return {};
  }

  std::string read(ValueId v, Tensor* t) const {
    const Slot& slot = memory_.slots[v];
    if (!values_.contains(v)) return fmt::format("%{} was never written", v);
    if (slot.where == Slot::Where::external && external_.at(slot.owner) != v) {
      return fmt::format("%{} was overwritten by the update %{}", v, external_.at(slot.owner));
    }
    if (slot.where == Slot::Where::arena) {
      for (int64_t k = 0; k < slot.bytes; ++k) {
        if (owner_[slot.offset + k] != v) return fmt::format("%{} was overwritten by %{}", v, owner_[slot.offset + k]);
      }
    }
    *t = values_.at(v);
    return {};
  }

 private:
  const Plan& plan_;
  const MemoryPlan& memory_;
  std::vector<ValueId> owner_;
  std::map<ValueId, ValueId> external_;
  std::map<ValueId, Tensor> values_;
};

// The group as a graph: what it reads becomes inputs, states included.
Graph as_graph(const Graph& g, const Group& group) {
  Graph tiny;
  std::map<ValueId, ValueId> at;
  for (ValueId v : group.inputs) {
    Node input{Op::input_, g[v].type, {}, {}, {}};
    input.attributes.name = "v" + std::to_string(v);
    input.attributes.role = Role::state;
    at[v] = static_cast<ValueId>(tiny.nodes.size());
    tiny.nodes.push_back(std::move(input));
  }
  std::vector<ValueId> updates;  // last: in place means that everything else was read before
  const auto add = [&](ValueId v) {
    Node copy = g[v];
    for (ValueId& o : copy.operands) o = at.at(o);
    at[v] = static_cast<ValueId>(tiny.nodes.size());
    tiny.nodes.push_back(std::move(copy));
  };
  for (ValueId v : group.nodes) {
    if (g[v].op == Op::update_) {
      updates.push_back(v);
    } else {
      add(v);
    }
  }
  for (ValueId v : updates) add(v);
  for (ValueId r : group.results) tiny.results.push_back(at.at(r));
  tiny.result_names.resize(tiny.results.size());
  return tiny;
}

}  // namespace

PlanRun run_plan(const Plan& plan, const MemoryPlan& memory, const std::map<std::string, Tensor>& inputs) {
  const Graph& g = plan.graph;
  PlanRun run;
  Storage storage(plan, memory);
  const auto failed = [&](std::string wrong) {
    if (run.wrong.empty()) run.wrong = std::move(wrong);
    return !run.wrong.empty();
  };
  for (ValueId v = 0; v < static_cast<ValueId>(g.nodes.size()); ++v) {
    if (g[v].op == Op::input_) {
      failed(storage.write(v, inputs.at(g[v].attributes.name)));
    } else if (g[v].op == Op::constant_ && !is_splat(g[v])) {
      failed(storage.write(v, {g[v].type, g[v].attributes.data, {}}));
    }
  }
  for (const Group& group : plan.groups) {
    if (failed(check_group(g, group))) return run;
    std::map<std::string, Tensor> arguments;
    for (ValueId v : group.inputs) {
      if (failed(storage.read(v, &arguments["v" + std::to_string(v)]))) return run;
    }
    const Graph tiny = as_graph(g, group);
    if (failed(verify(tiny))) return run;
    std::vector<Tensor> results = eval(tiny, arguments);
    for (size_t r = 0; r < results.size(); ++r) {
      if (failed(storage.write(group.results[r], std::move(results[r])))) return run;
    }
  }
  for (ValueId r : g.results) {
    run.results.emplace_back();
    if (failed(storage.read(r, &run.results.back()))) return run;
  }
  for (ValueId v = 0; v < static_cast<ValueId>(g.nodes.size()); ++v) {
    if (g[v].op != Op::update_) continue;
    Tensor t;
    if (storage.read(v, &t).empty()) run.states[g[memory.slots[v].owner].attributes.name] = t;
  }
  return run;
}

}  // namespace lumen::graph
