// Maps: one that is homogeneous in some of its operands passes codes between them and its result.
#include <algorithm>

#include "graph/equivalence/degree.h"
#include "graph/equivalence/propagation.h"
#include "graph/match/access.h"

namespace lumen::graph {

// The strides of a participant of a map over the map's own elements.
struct Propagation::Part {
  ValueId v = -1;
  bool picked = false;
  std::vector<int64_t> strides;
};

namespace {

// Whether a value can be scaled.
bool can_change(const Graph& g, ValueId v) {
  const Node& node = g[v];
  if (!is_float(node.type.element.scalar) || node.type.element.format) return false;
  if (node.op == Op::constant_ || node.op == Op::iota_ || node.op == Op::random_) return false;
  return node.op != Op::input_ || node.attributes.role == Role::parameter;
}

// Minimal sets of operands that contain `known` and in which a formula is homogeneous of degree 1.
std::vector<std::vector<bool>> least_sets(const Node& node, const std::vector<bool>& known,
                                          const std::vector<bool>& able, const std::vector<bool>& shiftable,
                                          bool linear) {
  std::vector<std::vector<bool>> found;
  const size_t n = node.operands.size();
  if (n > 10) return found;
  std::vector<uint32_t> sets;
  for (uint32_t set = 1; set < (1U << n); ++set) {
    bool fits = true;
    for (size_t k = 0; k < n; ++k) {
      const bool in = (set >> k & 1U) != 0;
      if ((known[k] && !in) || (in && !able[k])) fits = false;
      for (size_t m = 0; m < k; ++m)
        if (node.operands[m] == node.operands[k] && in != ((set >> m & 1U) != 0)) fits = false;
    }
    if (fits) sets.push_back(set);
  }
  std::stable_sort(sets.begin(), sets.end(),
                   [](uint32_t a, uint32_t b) { return __builtin_popcount(a) < __builtin_popcount(b); });
  std::vector<uint32_t> kept;
  for (const uint32_t set : sets) {
    if (std::any_of(kept.begin(), kept.end(), [&](uint32_t k) { return (k & set) == k; })) continue;
    DegreeQuestion question{std::vector<bool>(n), linear, linear ? std::vector<bool>() : shiftable};
    for (size_t k = 0; k < n; ++k) question.scaled[k] = (set >> k & 1U) != 0;
    const auto degree = degree_of(node.attributes.formula, question);
    if (!degree || degree->degree != 1) continue;
    kept.push_back(set);
    found.push_back(question.scaled);
  }
  return found;
}

}  // namespace

std::vector<Propagation::Choice> Propagation::choices_of(ValueId v) {
  const Node& node = g_[v];
  const size_t n = node.operands.size();
  Choice known(n), able(n), shiftable(n);
  for (size_t k = 0; k < n; ++k) {
    const ValueId o = node.operands[k];
    known[k] = is_marked(o);
    able[k] = can_change(g_, o);
    shiftable[k] = g_[o].op == Op::input_ && g_[o].attributes.role == Role::parameter;
  }
  if (const auto before = chosen_.find(v); before != chosen_.end()) {
    bool holds = true;
    for (size_t k = 0; k < n; ++k) holds = holds && (!known[k] || before->second[k]);
    if (holds) return {before->second};
  }
  std::vector<Choice> sets = least_sets(node, known, able, shiftable, law_ == Law::rotation);
  // Prefer norms and biases.
  std::stable_sort(sets.begin(), sets.end(), [&](const Choice& a, const Choice& b) {
    const auto parameters = [&](const Choice& c) {
      int count = 0;
      for (size_t k = 0; k < n; ++k) count += c[k] && shiftable[k] ? 1 : 0;
      return count;
    };
    return parameters(a) > parameters(b);
  });
  return sets;
}

void Propagation::relate_map(ValueId v) {
  const Node& node = g_[v];
  bool any = is_marked(v);
  for (const ValueId o : node.operands) any = any || is_marked(o);
  if (!any || (law_ == Law::rotation && relate_square(v))) return;
  why_ = "the value computed from it is no multiple of it" +
         (node.label.empty() ? std::string() : " (" + node.label + ")");
  const std::vector<Choice> choices = choices_of(v);
  if (!choices.empty()) return choose(v, choices);
  const std::string why = why_;
  fix(v, why);
  for (const ValueId o : node.operands) fix(o, why);
}

void Propagation::choose(ValueId v, const std::vector<Choice>& choices) {
  const bool by_side = g_[v].op == Op::contract_;
  const auto take = [&](Propagation& p, const Choice& choice) {
    p.chosen_[v] = choice;
    if (by_side)
      p.pass_contract(v, choice[0] ? 0 : 1);
    else
      p.relate_parts(v, choice);
  };
  if (choices.size() == 1) return take(*this, choices[0]);
  const int64_t before = s_.classes.free();
  const std::string why = why_;
  std::optional<State> best;
  std::map<ValueId, Choice> best_chosen;
  for (const Choice& choice : choices) {
    Propagation trial = *this;
    take(trial, choice);
    trial.run();
    const int64_t free = trial.failed() ? 0 : trial.s_.classes.free();
    const bool better = !best || (law_ == Law::scale ? free > best->classes.free() : best->failed && !trial.failed());
    if (!better) continue;
    best = trial.s_;
    best_chosen = trial.chosen_;
    if (law_ == Law::scale ? free == before : !trial.failed()) break;
  }
  s_ = std::move(*best);
  chosen_ = std::move(best_chosen);
  why_ = why;
}

// The participants with strides over the result's axes; with `picked`, the axes of an index became one of matrices.
// Empty when the marks of one of them do not allow it.
std::vector<Propagation::Part> Propagation::parts_of(ValueId v, const Choice& choice, bool picked) const {
  const Node& node = g_[v];
  const std::vector<int64_t> own = extents_of(node.type.shape);
  std::vector<ValueId> members = {v};
  for (size_t k = 0; k < choice.size(); ++k)
    if (choice[k]) members.push_back(node.operands[k]);
  ValueId pick = -1;
  for (const ValueId m : members)
    if (is_marked(m)) pick = std::max(pick, s_.marks.at(m).pick);
  const size_t leading = picked ? g_[pick].type.shape.size() : 0;
  std::vector<Part> parts;
  for (const ValueId m : members) {
    const std::vector<int64_t> of = extents_of(g_[m].type.shape), dense = dense_strides_of(of);
    std::vector<int64_t> strides(own.size(), 0);
    bool ones = true, whole = true;
    for (size_t d = 0; d < own.size(); ++d) {
      const int64_t extent = d + of.size() < own.size() ? 1 : of[d + of.size() - own.size()];
      if (extent != 1) strides[d] = dense[d + of.size() - own.size()];
      if (d < leading) {
        ones = ones && extent == 1;
        whole = whole && extent == own[d];
      }
    }
    Part part{m, false, std::move(strides)};
    if (picked) {
      const bool is_picked = is_marked(m) && s_.marks.at(m).pick == pick;
      if (!is_picked && is_marked(m) && !ones) return {};
      part.picked = is_picked || (!is_marked(m) && whole && !ones);
      if (!part.picked && !ones) return {};
      int64_t rest = 1;
      for (size_t d = leading; d < own.size(); ++d)
        rest *= d + of.size() < own.size() ? 1 : of[d + of.size() - own.size()];
      std::vector<int64_t> walked = {part.picked ? rest : 0};
      walked.insert(walked.end(), part.strides.begin() + leading, part.strides.end());
      part.strides = std::move(walked);
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

void Propagation::relate_parts(ValueId v, const Choice& choice) {
  const Node& node = g_[v];
  if (law_ == Law::rotation && !check_multipliers(v, choice)) return;
  DegreeQuestion question{choice, law_ == Law::rotation, std::vector<bool>(choice.size(), law_ == Law::scale)};
  const auto degree = degree_of(node.attributes.formula, question);
  for (size_t k = 0; k < choice.size(); ++k)
    if (degree && choice[k] && degree->offsets[k] != 0) s_.offsets[node.operands[k]] = degree->offsets[k];

  ValueId pick = is_marked(v) ? s_.marks.at(v).pick : -1;
  for (size_t k = 0; k < choice.size(); ++k)
    if (choice[k] && is_marked(node.operands[k])) pick = std::max(pick, s_.marks.at(node.operands[k]).pick);
  std::vector<Part> parts = parts_of(v, choice, pick >= 0);
  if (parts.empty()) {
    dense(v);
    for (size_t k = 0; k < choice.size(); ++k)
      if (choice[k]) dense(node.operands[k]);
    pick = -1;
    parts = parts_of(v, choice, false);
  }
  std::vector<int64_t> extents = extents_of(node.type.shape);
  if (pick >= 0) {
    const std::ptrdiff_t leading = g_[pick].type.shape.size();
    extents.erase(extents.begin(), extents.begin() + leading);
    extents.insert(extents.begin(), matrices(pick));
  }
  std::vector<std::vector<int32_t>*> codes;
  for (const Part& p : parts) {
    if (p.picked && !is_marked(p.v)) {
      int64_t size = matrices(pick);
      const Shape& shape = g_[p.v].type.shape;
      for (size_t d = g_[pick].type.shape.size(); d < shape.size(); ++d) size *= shape[d].number();
      s_.marks[p.v] = {pick, std::vector<int32_t>(size, 0)};
    }
    codes.push_back(&marks_of(p.v).codes);
  }
  std::vector<bool> changed(parts.size(), false);
  std::vector<int64_t> at(extents.size(), 0);
  const int64_t all = count_of(extents);
  for (int64_t i = 0; i < all; ++i) {
    int32_t* first = nullptr;
    for (size_t p = 0; p < parts.size(); ++p) {
      int64_t place = 0;
      for (size_t d = 0; d < at.size(); ++d) place += at[d] * parts[p].strides[d];
      int32_t* const code = &(*codes[p])[place];
      if (*code != 0 && !first) first = code;
      if (*code != 0 && first != code) unite(*first, *code);
    }
    for (size_t p = 0; first && p < parts.size(); ++p) {
      int64_t place = 0;
      for (size_t d = 0; d < at.size(); ++d) place += at[d] * parts[p].strides[d];
      int32_t& code = (*codes[p])[place];
      changed[p] = changed[p] || code == 0;
      if (code == 0) code = *first;
    }
    for (size_t d = at.size(); d-- > 0;) {
      if (++at[d] < extents[d]) break;
      at[d] = 0;
    }
  }
  for (size_t p = 0; p < parts.size(); ++p)
    if (changed[p]) touch(parts[p].v);
}

// The multiplier of a rotated value must be one number per block. A parameter that is not is a gain, as in norms: it
// must be 1 everywhere, which folding ensures.
bool Propagation::check_multipliers(ValueId v, const Choice& choice) {
  const Node& node = g_[v];
  ValueId marked = is_marked(v) ? v : -1;
  for (size_t k = 0; k < choice.size(); ++k)
    if (marked < 0 && choice[k] && is_marked(node.operands[k])) marked = node.operands[k];
  const std::vector<int64_t> of = extents_of(g_[marked].type.shape), strides = dense_strides_of(of);
  const std::vector<int32_t>& codes = s_.marks.at(marked).codes;
  const auto block = [&](int32_t code) { return code == 0 ? -1 : (code - 2) / block_; };
  std::vector<bool> varies(of.size(), false);
  for (int64_t i = 0; i < std::ssize(codes); ++i)
    for (size_t d = 0; d < of.size(); ++d) {
      if (of[d] == 1 || i / strides[d] % of[d] == of[d] - 1) continue;
      const int32_t a = codes[i], b = codes[i + (strides[d])];
      if (a != b && block(a) == block(b)) varies[d] = true;
    }
  for (size_t k = 0; k < choice.size(); ++k) {
    if (choice[k]) continue;
    const std::vector<int64_t> other = extents_of(g_[node.operands[k]].type.shape);
    bool same = true;
    for (size_t back = 1; back <= std::min(of.size(), other.size()); ++back)
      same = same && (other[other.size() - back] == 1 || !varies[of.size() - back]);
    if (same) continue;
    Choice alone(choice.size(), false);
    alone[k] = true;
    const auto degree = degree_of(node.attributes.formula, {alone, true, {}});
    const ValueId gain = read_below(g_, node.operands[k]);
    if (degree && degree->degree == 1 && gain >= 0 && g_[gain].op == Op::input_ &&
        g_[gain].attributes.role == Role::parameter && g_[gain].type.shape.size() == 1) {
      s_.gains[v] = gain;
      continue;
    }
    stop("channels are multiplied by different numbers" +
         (node.label.empty() ? std::string() : " (" + node.label + ")"));
    return false;
  }
  return true;
}

// Rotations keep sums of squares: x * x whose only use is a sum over whole blocks.
bool Propagation::relate_square(ValueId v) {
  const Node& node = g_[v];
  if (node.operands.size() != 1 || !is_square(node.attributes.formula, 0) || !is_marked(node.operands[0])) return false;
  const std::vector<int64_t> of = extents_of(node.type.shape);
  const std::vector<int32_t>& codes = s_.marks.at(node.operands[0]).codes;
  for (const ValueId u : users_[v]) {
    if (u < 0 || g_[u].op != Op::reduce_ || g_[u].attributes.reduction != Reduction::sum) return false;
    const std::vector<int64_t> out = extents_of(g_[u].type.shape), strides = dense_strides_of(out);
    std::map<std::pair<int64_t, int64_t>, int64_t> seen;  // by sum and block
    std::vector<int64_t> at(of.size(), 0);
    for (const int32_t code : codes) {
      int64_t place = 0;
      for (size_t d = 0; d < at.size(); ++d) place += out[d] == 1 ? 0 : at[d] * strides[d];
      if (code != 0) ++seen[{place, (code - 2) / block_}];
      for (size_t d = at.size(); d-- > 0;) {
        if (++at[d] < of[d]) break;
        at[d] = 0;
      }
    }
    for (const auto& [where, count] : seen)
      if (count != block_) return false;
  }
  return true;
}

}  // namespace lumen::graph
