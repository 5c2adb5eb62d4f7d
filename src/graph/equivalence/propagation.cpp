#include "graph/equivalence/propagation.h"

#include <algorithm>

#include "base/check.h"
#include "graph/match/access.h"

namespace lumen::graph {

namespace {

// For each element of a view the element of its operand; -1 does not occur.
std::vector<int64_t> sources_of(const Graph& g, ValueId v) {
  const Node& node = g[v];
  const std::vector<int64_t> own = extents_of(node.type.shape), of = extents_of(g[node.operands[0]].type.shape),
                             dense = dense_strides_of(of);
  std::vector<int64_t> out(count_of(own));
  std::vector<int64_t> step(own.size(), 0);
  int64_t offset = 0;
  if (node.op == Op::reshape_) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = i;
    return out;
  }
  for (size_t d = 0; d < own.size(); ++d) {
    if (node.op == Op::permute_) {
      step[d] = dense[node.attributes.axes[d]];
    } else if (node.op == Op::slice_) {
      step[d] = dense[d] * node.attributes.strides[d];
      offset += dense[d] * node.attributes.starts[d];
    } else if (d + of.size() >= own.size()) {  // broadcast
      const size_t at = d + of.size() - own.size();
      step[d] = of[at] == 1 ? 0 : dense[at];
    }
  }
  std::vector<int64_t> at(own.size(), 0);
  for (int64_t& o : out) {
    o = offset;
    for (size_t d = 0; d < own.size(); ++d) o += at[d] * step[d];
    for (size_t d = own.size(); d-- > 0;) {
      if (++at[d] < own[d]) break;
      at[d] = 0;
    }
  }
  return out;
}

}  // namespace

int64_t count_of(const std::vector<int64_t>& extents) {
  int64_t n = 1;
  for (const int64_t e : extents) n *= e;
  return n;
}

bool is_weight(const Graph& g, ValueId v) {
  return g[v].op == Op::input_ && g[v].attributes.role == Role::parameter &&
         (g[v].type.shape.size() == 2 || g[v].type.shape.size() == 3);
}

void Propagation::mark(ValueId v, Marks marks) {
  LUMEN_CHECK(!is_marked(v));
  s_.marks[v] = std::move(marks);
  touch(v);
}

void Propagation::run() {
  while (!s_.todo.empty() && !failed()) {
    const ValueId v = *s_.todo.rbegin();
    s_.todo.erase(v);
    relate(v);
  }
}

// --- codes

void Propagation::stop(const std::string& why) {
  s_.failed = true;
  if (s_.reason.empty()) s_.reason = why;
}

void Propagation::unite(int32_t a, int32_t b) {
  if (law_ == Law::rotation) {
    if (a != b) stop(why_);
    return;
  }
  const bool to_one = s_.classes.root(a) == -s_.classes.root(b) || s_.classes.is_fixed(a) || s_.classes.is_fixed(b);
  if (s_.classes.unite(a, b) && to_one && s_.reason.empty()) s_.reason = why_;
}

bool Propagation::pair(int32_t* a, int32_t* b, int32_t sign) {
  if (law_ == Law::rotation) sign = 1;
  if (*a != 0 && *b != 0) {
    unite(*a, sign * *b);
    return false;
  }
  if (*a == *b) return false;
  if (*a == 0)
    *a = sign * *b;
  else
    *b = sign * *a;
  return true;
}

void Propagation::touch(ValueId v) {
  s_.todo.insert(v);
  for (const ValueId u : users_[v]) {
    if (u >= 0)
      s_.todo.insert(u);
    else
      fix(v, "it is a result");
  }
}

Marks& Propagation::marks_of(ValueId v) {
  const auto [at, fresh] = s_.marks.try_emplace(v);
  if (fresh) at->second.codes.assign(count_of(extents_of(g_[v].type.shape)), 0);
  return at->second;
}

Marks& Propagation::dense(ValueId v) {
  Marks& m = marks_of(v);
  if (m.pick < 0) return m;
  // One code for all matrices that may be selected.
  std::vector<int32_t> all(count_of(extents_of(g_[v].type.shape)), 0);
  const size_t rest = m.codes.size() / matrices(m.pick);
  for (size_t i = 0; i < m.codes.size(); ++i)
    for (size_t at = i % rest; at < all.size(); at += rest) pair(&all[at], &m.codes[i], 1);
  m = {-1, std::move(all)};
  touch(v);
  return m;
}

void Propagation::fix(const std::vector<int32_t>& codes, std::string why) {
  if (law_ == Law::rotation) {
    stop(why);
    return;
  }
  const std::string before = std::exchange(why_, std::move(why));
  for (const int32_t c : codes)
    if (c != 0) unite(c, Classes::kFixed);
  why_ = before;
}

void Propagation::fix(ValueId v, const std::string& why) {
  if (const auto found = s_.marks.find(v); found != s_.marks.end()) fix(found->second.codes, why);
}

void Propagation::fix_weight(ValueId v, const std::string& why) {
  const auto found = s_.weights.find(v);
  if (found == s_.weights.end()) return;
  fix(found->second.rows, why);
  fix(found->second.columns, why);
}

WeightMarks& Propagation::weight(ValueId v) {
  const auto [at, fresh] = s_.weights.try_emplace(v);
  if (fresh) {
    const std::vector<int64_t> e = extents_of(g_[v].type.shape);
    const int64_t all = count_of(e);
    at->second.rows.assign(all / e.back(), 0);
    at->second.columns.assign(all / e[e.size() - 2], 0);
  }
  return at->second;
}

// --- relations

void Propagation::relate(ValueId v) {
  const Node& node = g_[v];
  const std::string name = node.label.empty() ? "" : " (" + node.label + ")";
  switch (node.op) {
    case Op::input_:
      if (node.attributes.role != Role::parameter) fix(v, "'" + node.attributes.name + "' is given from outside");
      return;
    case Op::contract_:
      if (const WeightProduct p = weight_product(g_, v); p.weight >= 0)
        relate_product(v, p);
      else
        relate_contract(v);
      return;
    case Op::contract_gather_:
      relate_picked(v);
      return;
    case Op::gather_:
      relate_gather(v);
      return;
    default:
      break;
  }
  for (const ValueId o : node.operands)
    if (s_.weights.contains(o)) fix_weight(o, "'" + g_[o].attributes.name + "' is read by more than products" + name);
  switch (node.op) {
    case Op::reshape_:
    case Op::permute_:
    case Op::broadcast_:
    case Op::slice_:
      relate_view(v);
      return;
    case Op::concat_:
      relate_concat(v);
      return;
    case Op::reduce_:
      relate_reduce(v);
      return;
    case Op::map_:
      relate_map(v);
      return;
    default:
      why_ = "it goes through " + std::string(op_info(node.op).name) + name;
      fix(v, why_);
      for (const ValueId o : node.operands) fix(o, why_);
  }
}

void Propagation::relate_view(ValueId v) {
  const ValueId a = g_[v].operands[0];
  if (!is_marked(v) && !is_marked(a)) return;
  if (is_weight(g_, a)) {
    why_ = "'" + g_[a].attributes.name + "' is read in parts";
    fix(v, why_);
    fix(a, why_);
    return;
  }
  const auto pick_of = [&](ValueId x) { return is_marked(x) ? s_.marks.at(x).pick : -1; };
  const ValueId pick = std::max(pick_of(v), pick_of(a));
  if (pick >= 0) {
    const Shape &index = g_[pick].type.shape, &to = g_[v].type.shape, &from = g_[a].type.shape;
    const auto begins = [&](const Shape& s) {
      return s.size() >= index.size() && std::equal(index.begin(), index.end(), s.begin());
    };
    if (g_[v].op == Op::reshape_ && begins(to) && begins(from) && (!is_marked(v) || !is_marked(a))) {
      const auto known = s_.marks.at(is_marked(v) ? v : a);
      mark(is_marked(v) ? a : v, known);
      return;
    }
  }
  Marks &to = dense(v), &from = dense(a);
  const std::vector<int64_t> at = sources_of(g_, v);
  bool changed = false;
  why_ = "parts of it are read apart";
  for (size_t i = 0; i < at.size(); ++i) changed = pair(&to.codes[i], &from.codes[at[i]], 1) || changed;
  if (changed) {
    touch(v);
    touch(a);
  }
}

void Propagation::relate_concat(ValueId v) {
  const Node& node = g_[v];
  bool any = is_marked(v);
  for (const ValueId o : node.operands) any = any || is_marked(o);
  if (!any) return;
  const std::vector<int64_t> whole = extents_of(node.type.shape);
  const size_t axis = node.attributes.axis;
  int64_t inner = 1;
  for (size_t d = axis + 1; d < whole.size(); ++d) inner *= whole[d];
  int64_t start = 0;
  dense(v);
  bool changed = false;
  for (const ValueId o : node.operands) {
    const int64_t own = g_[o].type.shape[axis].number();
    dense(o);
    Marks &to = s_.marks.at(v), &from = s_.marks.at(o);
    for (int64_t i = 0; i < std::ssize(from.codes); ++i) {
      const int64_t line = i / (own * inner), place = i % (own * inner);
      int32_t& there = to.codes[(line * whole[axis] + start) * inner + place];
      changed = pair(&there, &from.codes[i], 1) || changed;
    }
    start += own;
  }
  if (!changed) return;
  touch(v);
  for (const ValueId o : node.operands) touch(o);
}

void Propagation::relate_reduce(ValueId v) {
  const Node& node = g_[v];
  const ValueId a = node.operands[0];
  if (!is_marked(v) && !is_marked(a)) return;
  why_ = "channels are added" + (node.label.empty() ? std::string() : " (" + node.label + ")");
  if (node.attributes.reduction != Reduction::sum && law_ == Law::rotation)
    return stop("a maximum of channels is taken");
  Marks &to = dense(v), &from = dense(a);
  const std::vector<int64_t> extents = extents_of(g_[a].type.shape), out = extents_of(node.type.shape),
                             strides = dense_strides_of(out);
  std::vector<int64_t> at(extents.size(), 0);
  bool changed = false;
  for (int32_t& code : from.codes) {
    int64_t place = 0;
    for (size_t d = 0; d < at.size(); ++d) place += out[d] == 1 ? 0 : at[d] * strides[d];
    changed = pair(&to.codes[place], &code, 1) || changed;
    for (size_t d = at.size(); d-- > 0;) {
      if (++at[d] < extents[d]) break;
      at[d] = 0;
    }
  }
  // Elements that share a sum got the same code; elements visited earlier must be revisited.
  if (!changed) return;
  touch(v);
  touch(a);
}

// A gather of a table: a small table's rows take the codes of weights that the same integers select, row by row; any
// table's columns take codes.
void Propagation::relate_gather(ValueId v) {
  const ValueId table = g_[v].operands[0], index = g_[v].operands[1];
  const bool row_by_row =
      is_marked(v) && s_.marks.at(v).pick == index && g_[index].type.shape.size() + 1 == g_[v].type.shape.size();
  if (is_weight(g_, table) && g_[table].type.shape.size() == 2 && (row_by_row || is_marked(table))) {
    if (!matrices_.contains(index)) matrices_[index] = g_[table].type.shape[0].number();
    if (matrices(index) == g_[table].type.shape[0].number()) {
      Marks& of = marks_of(table);
      if (!is_marked(v)) s_.marks[v] = {index, std::vector<int32_t>(of.codes.size(), 0)};
      if (s_.marks.at(v).pick == index) {
        Marks& to = s_.marks.at(v);
        bool changed = false;
        for (size_t i = 0; i < of.codes.size(); ++i) changed = pair(&to.codes[i], &of.codes[i], 1) || changed;
        if (changed) {
          touch(v);
          touch(table);
        }
        return;
      }
    }
    fix(table, "rows of '" + g_[table].attributes.name + "' are read by number");
  }
  const bool has_columns = s_.weights.contains(table);
  if (!is_marked(v) && !has_columns) return;
  why_ = is_weight(g_, table) ? "rows of '" + g_[table].attributes.name + "' are read by number"
                              : "rows are read by number";
  if (law_ == Law::scale || !is_weight(g_, table) || g_[table].type.shape.size() != 2) {
    fix_weight(table, why_);
    fix(v, why_);
    fix(table, why_);
    return;
  }
  std::vector<int32_t>& columns = weight(table).columns;
  Marks& to = dense(v);
  bool changed = false;
  for (size_t i = 0; i < to.codes.size(); ++i) changed = pair(&to.codes[i], &columns[i % columns.size()], 1) || changed;
  if (!changed) return;
  touch(v);
  touch(table);
}

}  // namespace lumen::graph
