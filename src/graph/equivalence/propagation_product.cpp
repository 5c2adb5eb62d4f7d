// Products: rows and columns of weights take codes, products of activations pass them on or cancel them.
#include <algorithm>

#include "graph/equivalence/propagation.h"
#include "graph/match/access.h"

namespace lumen::graph {

namespace {

bool has(const std::string& letters, char c) {
  return letters.find(c) != std::string::npos;
}

// Iterates over all values of some letters in row-major order; offsets of operands by their own letters.
class Walk {
 public:
  Walk(const Graph& g, const Node& node, std::string letters) : letters_(std::move(letters)), at_(letters_.size(), 0) {
    const auto& indices = node.attributes.indices;
    std::map<char, int64_t> extent;
    for (size_t k = 0; k < node.operands.size(); ++k)
      for (size_t d = 0; d < indices[k].size(); ++d) extent[indices[k][d]] = g[node.operands[k]].type.shape[d].number();
    for (const char c : letters_) extents_.push_back(extent.at(c));
    extent_ = std::move(extent);
    left_ = count_of(extents_);
  }
  // Offset in an array that has these letters as axes.
  size_t offset(const std::string& of) const {
    int64_t place = 0;
    for (const char c : of) place = place * extent_.at(c) + (has(letters_, c) ? at_[letters_.find(c)] : 0);
    return place;
  }
  bool done() const { return left_ == 0; }
  void next() {
    --left_;
    for (size_t d = at_.size(); d-- > 0;) {
      if (++at_[d] < extents_[d]) break;
      at_[d] = 0;
    }
  }

 private:
  std::string letters_;
  std::vector<int64_t> at_, extents_;
  std::map<char, int64_t> extent_;
  int64_t left_ = 0;
};

std::string all_letters(const Node& node) {
  std::string all;
  for (const std::string& letters : node.attributes.indices)
    for (const char c : letters)
      if (!has(all, c)) all += c;
  return all;
}

std::string without(std::string letters, char c) {
  std::erase(letters, c);
  return letters;
}

}  // namespace

WeightProduct weight_product(const Graph& g, ValueId v) {
  const Node& node = g[v];
  if (node.op != Op::contract_ || node.operands[0] == node.operands[1]) return {};
  const auto& i = node.attributes.indices;
  for (const int side : {1, 0}) {
    const ValueId w = node.operands[side], x = node.operands[1 - side];
    if (!is_weight(g, w) || is_weight(g, x)) continue;
    const std::string &of_w = i[side], &of_x = i[1 - side], &out = i[2];
    const char p = of_w[of_w.size() - 2], q = of_w.back();
    const bool batch = of_w.size() == 2 || (has(of_x, of_w[0]) && has(out, of_w[0]));
    if (!batch) continue;
    if (has(of_x, q) && !has(out, q) && has(out, p) && !has(of_x, p)) return {w, x, side, false};
    if (has(of_x, p) && !has(out, p) && has(out, q) && !has(of_x, q)) return {w, x, side, true};
  }
  return {};
}

void Propagation::relate_product(ValueId v, const WeightProduct& p) {
  const Node& node = g_[v];
  if (is_marked(p.weight)) {
    why_ = "'" + g_[p.weight].attributes.name + "' is more than a weight of products";
    fix(p.weight, why_);
  }
  if (!is_marked(v) && !is_marked(p.x) && !s_.weights.contains(p.weight)) return;
  why_ = "columns of '" + g_[p.weight].attributes.name + "' are read together";
  const std::string &of_w = node.attributes.indices[p.side], &of_x = node.attributes.indices[1 - p.side],
                    &of_out = node.attributes.indices[2];
  WeightMarks& w = weight(p.weight);
  const std::string rows = of_w.substr(0, of_w.size() - 1), columns = without(of_w, of_w[of_w.size() - 2]);
  bool changed = false;
  const auto relate = [&](ValueId value, const std::string& letters, std::vector<int32_t>& side,
                          const std::string& of_side, int32_t sign) {
    const bool known = std::any_of(side.begin(), side.end(), [](int32_t c) { return c != 0; });
    if (!is_marked(value) && !known) return;
    Marks& m = dense(value);
    bool here = false;
    for (Walk walk(g_, node, letters); !walk.done(); walk.next())
      here = pair(&m.codes[walk.offset(letters)], &side[walk.offset(of_side)], sign) || here;
    if (here) touch(value);
    changed = changed || here;
  };
  relate(p.x, of_x, p.transposed ? w.rows : w.columns, p.transposed ? rows : columns, -1);
  relate(v, of_out, p.transposed ? w.columns : w.rows, p.transposed ? columns : rows, 1);
  if (changed) touch(p.weight);
}

// Rows that select matrices. x has the letters of the index and of the column, or some of them; the result has those of
// the index and of the row.
void Propagation::relate_picked(ValueId v) {
  const Node& node = g_[v];
  const ValueId x = node.operands[0], w = node.operands[1], index = node.operands[2];
  if (!is_marked(v) && !is_marked(x) && !is_marked(w) && !s_.weights.contains(w)) return;
  const auto& i = node.attributes.indices;
  const bool plain = is_weight(g_, w) && i[1].size() == 3 && has(i[0], i[1][2]) && !has(i[0], i[1][1]);
  if (!plain || is_marked(w)) {
    why_ = "matrices that rows pick are no weight of products";
    fix(v, why_);
    fix(x, why_);
    fix(w, why_);
    return;
  }
  why_ = "columns of '" + g_[w].attributes.name + "' are read together";
  matrices_.try_emplace(index, g_[w].type.shape[0].number());
  relate_picked_side(v, false);
  relate_picked_side(v, true);
}

void Propagation::relate_picked_side(ValueId v, bool result) {
  const Node& node = g_[v];
  const ValueId w = node.operands[1], index = node.operands[2], value = result ? v : node.operands[0];
  const auto& i = node.attributes.indices;
  const int32_t sign = result ? 1 : -1;
  std::vector<int32_t>& side = result ? weight(w).rows : weight(w).columns;
  const bool known = std::any_of(side.begin(), side.end(), [](int32_t c) { return c != 0; });
  if (!is_marked(value) && !known) return;
  const int64_t rest = std::ssize(side) / matrices(index);
  const bool aligned = (result || i[0] == i[2] + i[1][2]) && matrices(index) == g_[w].type.shape[0].number();
  if (aligned && !is_marked(value) && law_ == Law::scale)
    s_.marks[value] = {index, std::vector<int32_t>(side.size(), 0)};
  bool changed = false;
  if (is_marked(value) && s_.marks.at(value).pick == index && aligned) {
    Marks& m = s_.marks.at(value);
    for (size_t k = 0; k < side.size(); ++k) changed = pair(&m.codes[k], &side[k], sign) || changed;
  } else {
    Marks& m = dense(value);
    const std::string own = result ? i[2] + i[1][1] : i[0];
    const char channel = result ? i[1][1] : i[1][2];
    for (Walk walk(g_, node, own); !walk.done(); walk.next())
      for (int64_t e = 0; e * rest < std::ssize(side); ++e)
        changed =
            pair(&m.codes[walk.offset(own)], &side[e * rest + walk.offset(std::string(1, channel))], sign) || changed;
  }
  if (!changed) return;
  touch(value);
  touch(w);
}

// Whether codes of an operand differ along letters that the result lacks.
bool Propagation::varies_inside(ValueId operand, const std::string& letters, const std::string& kept) const {
  const std::vector<int64_t> of = extents_of(g_[operand].type.shape), strides = dense_strides_of(of);
  const std::vector<int32_t>& codes = s_.marks.at(operand).codes;
  const auto root = [&](int32_t code) { return law_ == Law::rotation || code == 0 ? code : s_.classes.root(code); };
  for (int64_t i = 0; i < std::ssize(codes); ++i)
    for (size_t d = 0; d < of.size(); ++d) {
      if (has(kept, letters[d]) || i / strides[d] % of[d] == of[d] - 1) continue;
      if (root(codes[i]) != root(codes[i + (strides[d])])) return true;
    }
  return false;
}

void Propagation::relate_contract(ValueId v) {
  const Node& node = g_[v];
  const ValueId a = node.operands[0], b = node.operands[1];
  if (!is_marked(v) && !is_marked(a) && !is_marked(b)) return;
  const auto& i = node.attributes.indices;
  why_ = "products mix it with others" + (node.label.empty() ? std::string() : " (" + node.label + ")");
  for (const ValueId o : {a, b})
    if (is_weight(g_, read_below(g_, o) >= 0 ? read_below(g_, o) : o)) {
      why_ = "'" + g_[read_below(g_, o)].attributes.name + "' is read in parts";
      fix(v, why_);
      fix(a, why_);
      fix(b, why_);
      return;
    }
  for (const ValueId o : {a, b, v})
    if (is_marked(o)) dense(o);
  const bool cancel = (is_marked(a) && varies_inside(a, i[0], i[2])) || (is_marked(b) && varies_inside(b, i[1], i[2]));
  if (cancel) {
    fix(v, why_);
    return cancel_contract(v);
  }
  if (is_marked(a) && is_marked(b)) {
    fix(a, why_);
    fix(b, why_);
    fix(v, why_);
    return;
  }
  if (is_marked(a) || is_marked(b)) return pass_contract(v, is_marked(a) ? 0 : 1);
  if (const auto before = chosen_.find(v); before != chosen_.end()) return choose(v, {before->second});
  const Choice left = {true, false}, right = {false, true};
  if (has(i[1], i[2].back()))
    return choose(v, has(i[0], i[2].back()) ? std::vector<Choice>{right, left} : std::vector<Choice>{right});
  choose(v, {left});
}

// The codes of the result are those of one operand.
void Propagation::pass_contract(ValueId v, int side) {
  const Node& node = g_[v];
  const ValueId o = node.operands[side];
  const auto& i = node.attributes.indices;
  Marks &to = dense(v), &from = dense(o);
  bool changed = false;
  for (Walk walk(g_, node, all_letters(node)); !walk.done(); walk.next())
    changed = pair(&to.codes[walk.offset(i[2])], &from.codes[walk.offset(i[side])], 1) || changed;
  if (!changed) return;
  touch(v);
  touch(o);
}

// A scale of one operand is divided out of the other; if both are rotated alike, their products stay.
void Propagation::cancel_contract(ValueId v) {
  const Node& node = g_[v];
  const ValueId a = node.operands[0], b = node.operands[1];
  const auto& i = node.attributes.indices;
  Marks &x = dense(a), &y = dense(b);
  bool changed = false;
  std::map<std::pair<size_t, int64_t>, int64_t> seen;  // by place of the result and block
  for (Walk walk(g_, node, all_letters(node)); !walk.done(); walk.next()) {
    int32_t& code = x.codes[walk.offset(i[0])];
    changed = pair(&code, &y.codes[walk.offset(i[1])], -1) || changed;
    if (law_ == Law::rotation && code != 0) ++seen[{walk.offset(i[2]), (code - 2) / block_}];
  }
  for (const auto& [where, count] : seen)
    if (count != block_) return stop("parts of a rotated value are multiplied separately");
  if (!changed) return;
  touch(a);
  touch(b);
}

}  // namespace lumen::graph
